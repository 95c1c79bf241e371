"""Time every page's queries of a large history: made-up runs in a temporary directory.

    python -m tests.perf.history --runs 1000

Each size is opened by a fresh process, so its memory and its time to open are those of a start of the app
(the files are in the page cache, as they are where runs are made).
Prints one JSON document; the exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dsocr_core.models.family import FIRST, all_stages, inside_prefill
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.speed import compare_speed

SIZES = (0.1, 0.3, 1.0)
"""Shares of all runs at which everything is timed, to show how it grows."""
TARGETS = {
    "build_s": 20.0,
    "open_s": 0.2,
    "refresh_s": 0.4,
    "history": 400.0,
    "run": 50.0,
    "statistics": 400.0,
}
"""Seconds; of queries over the whole history, about one run or two, and those with a bootstrap of every stage
behind them the p95 in milliseconds."""

_STAGES = [stage.value for stage in all_stages()]
_TYPICAL_MS = np.array([30.0, 1.0, 60.0, 50.0, 35.0, 2.0, 1.0, 180.0, 2400.0, 4.0])


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Build a large history and time every query.")
    parser.add_argument("--runs", type=int, default=1000, help="runs of the largest size")
    parser.add_argument("--rows", type=int, default=10_000_000, help="stage rows in all")
    where = "where the history is built and deleted again (default: the system's temporary directory)"
    parser.add_argument("--directory", type=Path, default=None, metavar="DIR", help=where)
    return parser


def main() -> int:
    options = build_parser().parse_args()
    found = bench(options.runs, options.rows, options.directory)
    print(json.dumps(found))
    return 1 if found["missed"] else 0


def bench(runs: int, rows: int, directory: Path | None = None, repeats: int = 20) -> dict[str, Any]:
    """Build the history step by step in a new directory inside `directory` and time it at each size.

    Deletes what it built.
    """
    with tempfile.TemporaryDirectory(prefix="dsocr-bench-", dir=directory) as folder:
        root, written, seconds, sizes = Path(folder), 0, list[float](), list[dict[str, Any]]()
        for share in SIZES:
            count = max(2, round(runs * share))
            for number in range(written, count):
                start = time.perf_counter()
                write_made_up_run(root, number, pages=max(1, rows // runs // len(_STAGES)))
                seconds.append(time.perf_counter() - start)
            written = count
            # An executor says so when its process dies; a pool would start it anew for ever.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                sizes.append(process.submit(measure, root, repeats).result())
            print(json.dumps(sizes[-1], indent=1), file=sys.stderr)
        return {"write_run_ms": float(np.median(seconds)) * 1000, "sizes": sizes, "missed": missed(sizes[-1])}


def missed(size: dict[str, Any]) -> list[str]:
    """Targets that a size did not reach."""
    figures = {name: size[name] for name in ("build_s", "open_s", "refresh_s")}
    found = [
        f"{name}: {value:.3g} > {TARGETS[name]:g}" for name, value in figures.items() if value > TARGETS[name]
    ]
    return found + [
        f"{query['name']}: {query['p95_ms']:.3g} ms > {TARGETS[query['over']]:g} ms"
        for query in size["queries"]
        if query["p95_ms"] > TARGETS[query["over"]]
    ]


def write_made_up_run(root: Path, number: int, pages: int) -> None:
    """Seeded times that look like a fortnight of work: every fifth run has both backends."""
    random = np.random.default_rng(number)
    backends = ("eager", "vendor") if number % 5 == 0 else ("eager",)
    each = max(1, pages // len(backends))
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=20 * number)
    record = RunRecord(
        id=f"made-up-{number:06d}",
        created=moment.isoformat(),
        source="dsocr",
        command="python -m dsocr_core run pages/",
        backends=backends,
        engine=("eager", "fast")[number % 2],
        device="cuda:0",
        gpu=("NVIDIA H200", "NVIDIA GeForce RTX 5090")[number % 3 == 0],
        host=f"host-{number % 4}",
        dtype="bfloat16",
        attention="sdpa",
        preset=("gundam", "small")[number % 7 == 0],
        profiled=number % 50 == 49,
        git_commit=f"{number // 10:040x}",
        versions={"torch": "2.13.0", "python": "3.11.7"},
        settings={"preset": "gundam", "infer": {"max_new_tokens": 8192, "no_repeat_ngram_size": 20}},
    )
    with RunDirectory.create(root, record) as run:
        for backend in backends:
            run.add_rows("readings", images := _images(random, each, backend))
            run.add_rows("stage_flops", _flops(random, images))
            run.add_rows("stage_timings", _timings(random, each, backend, number))
        if number % 20 == 0:
            run.add_rows("kernels", _kernels(random))


def _names(pages: int) -> pa.Array:
    return pa.array([f"invoices/page-{number:05d}.png" for number in range(pages)])


def _images(random: np.random.Generator, pages: int, backend: str) -> pa.Table:
    tokens = random.integers(50, 1200, pages)
    return pa.table(
        {
            "page": _names(pages),
            "source": _names(pages),
            "width": pa.repeat(1240, pages),
            "height": pa.repeat(1754, pages),
            "sha256": pa.array([f"{number:064x}" for number in range(pages)]),
            "preset": pa.repeat("gundam", pages),
            "grid_columns": pa.repeat(2, pages),
            "grid_rows": pa.repeat(3, pages),
            "prompt_tokens": pa.repeat(913, pages),
            "new_tokens": pa.array(tokens),
            "backend": pa.repeat(backend, pages),
        }
    )


def _flops(random: np.random.Generator, images: pa.Table) -> pa.Table:
    """Counts of a shape a page: as many as there can be."""
    shapes = [f"gundam 2x3, 913 + {new} tokens" for new in set(images["new_tokens"].to_pylist())]
    stages = [stage.value for stage in FIRST.computed]
    kinds = ("analytic", "measured", "least")
    count = len(shapes) * len(stages) * len(kinds)
    flops = np.repeat(random.lognormal(26, 1, count // len(kinds)), len(kinds))
    return pa.table(
        {
            "shape": pa.array(np.repeat(shapes, len(stages) * len(kinds))),
            "stage": pa.array(np.tile(np.repeat(stages, len(kinds)), len(shapes))),
            "kind": pa.array(list(kinds) * (count // len(kinds))),
            "backend": pa.repeat(images["backend"][0].as_py(), count),
            "flops": pa.array(flops),
            "bytes": pa.array(flops / 300),
        }
    )


def _timings(random: np.random.Generator, pages: int, backend: str, number: int) -> pa.Table:
    slower = (4.0 if backend == "vendor" else 1.0) * (0.8 if number % 400 > 200 else 1.0)
    times = _TYPICAL_MS[None] * slower * random.lognormal(0, 0.2, (pages, len(_STAGES)))  # (P, S)
    inside = [stage in inside_prefill() for stage in all_stages()]
    count = pages * len(_STAGES)
    return pa.table(
        {
            "page": _names(pages).take(pa.array(np.repeat(np.arange(pages), len(_STAGES)))),
            "backend": pa.repeat(backend, count),
            "stage": pa.array(_STAGES * pages),
            "milliseconds": pa.array(times.ravel()),
            "calls": pa.repeat(1, count),
            "inside_prefill": pa.array(inside * pages),
            "aggregate": pa.repeat("page", count),
        }
    )


def _kernels(random: np.random.Generator, count: int = 300) -> pa.Table:
    return pa.table(
        {
            "stage": pa.array(["prefill", "decode"] * (count // 2)),
            "name": pa.array([f"void gemm_kernel<{number}>(float*)" for number in range(count)]),
            "total_ns": pa.array(random.lognormal(12, 2, count)),
            "instances": pa.array(random.integers(1, 9000, count)),
        }
    )


# --- in a fresh process -------------------------------------------------------------------------


def measure(root: Path, repeats: int) -> dict[str, Any]:
    """Open a history, let it take in new runs, ask everything so many times."""
    os.environ["DSOCR_CACHE"] = str(root / f"cache-{os.getpid()}")
    start = time.perf_counter()
    History(root).close()
    build_s = time.perf_counter() - start
    before, start = _resident_mb(), time.perf_counter()
    history = History(root)
    open_s = time.perf_counter() - start
    with history:
        runs = len(history)
        rows = int(history.sql("SELECT count(*) AS n FROM stage_timings")["n"].iloc[0])
        queries = [_time_query(history, repeats, *case) for case in _cases(history, repeats)]
        memory = _resident_mb() - before
        refreshes = [
            _refresh_after_a_run(history, 900_000 + runs + extra, rows // runs) for extra in range(3)
        ]
        start = time.perf_counter()
        history.refresh()
        idle = time.perf_counter() - start
    return {
        "runs": runs, "stage_rows": rows, "build_s": build_s, "open_s": open_s, "refresh_s": max(refreshes),
        "idle_refresh_s": idle, "memory_mb": memory, "queries": queries,
    }  # fmt: skip


def _refresh_after_a_run(history: History, number: int, rows: int) -> float:
    root = Path(history.storage.location)
    write_made_up_run(root, number, max(1, rows // len(_STAGES)))
    start = time.perf_counter()
    assert history.refresh() == 1
    seconds = time.perf_counter() - start
    history.storage.remove(f"made-up-{number:06d}")
    history.refresh()
    return seconds


def _cases(history: History, repeats: int) -> Iterator[tuple[str, str, Callable[[int], int]]]:
    """(name, kind, what to ask the n-th time: returns how many rows came)."""
    ids = history.run_ids()
    random = np.random.default_rng(0)
    picks = [[ids[index] for index in random.choice(len(ids), 2, replace=False)] for _ in range(repeats)]

    def ask(name: str, **parameters: Any) -> int:
        return len(history.query(name, **parameters)[0])

    yield "runs", "history", lambda _: ask("runs")
    yield "runs, filtered", "history", lambda _: ask("runs", gpus=["NVIDIA H200"], backends=["fast"])
    yield "filter_values", "history", lambda _: ask("filter_values")
    yield "stage_summary, all runs", "history", lambda _: ask("stage_summary")
    yield "kernels, all runs", "history", lambda _: ask("kernels", run_ids=ids, top=1)
    yield "stage_summary", "run", lambda n: ask("stage_summary", run_ids=picks[n][:1])
    yield "facts", "run", lambda n: ask("facts", run_ids=picks[n])
    yield "kernels", "run", lambda n: ask("kernels", run_ids=[ids[20 * n % len(ids)]])
    sides = [{"a": a, "b": b, "backend_a": "eager", "backend_b": "eager"} for a, b in picks]
    yield "coverage", "run", lambda n: ask("coverage", **sides[n])
    yield (
        "pairs and their intervals",
        "statistics",
        lambda n: len(compare_speed(history, *((run, "eager") for run in picks[n]))),
    )


def _time_query(
    history: History, repeats: int, name: str, over: str, ask: Callable[[int], int]
) -> dict[str, Any]:
    times, rows = [], 0
    for number in range(repeats):
        start = time.perf_counter()
        rows = ask(number)
        times.append((time.perf_counter() - start) * 1000)
    p95 = float(np.quantile(times, 0.95))
    return {"name": name, "over": over, "rows": rows, "median_ms": float(np.median(times)), "p95_ms": p95}


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
