"""Time every page's queries of a large history: made-up runs in a temporary directory.

    python -m tests.perf.history --runs 1000

It is opened by a fresh process, so its memory and its time to open are those of a start of the app (the files
are in the page cache, as they are where runs are made).
Prints one JSON document; the exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
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

from dsocr_core.models.family import FIRST
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.speed import compare_speed

TARGETS = {
    "build_s": 20.0, "open_s": 0.2, "refresh_s": 0.4, "flops_s": 15.0,
    "history_ms": 400.0, "run_ms": 50.0, "statistics_ms": 400.0,
}  # fmt: skip
"""Of FLOPs those of every run; of queries over the whole history, about one run or two, and of compared
speeds the p95."""
REPEATS = 20

_STAGES = [stage.value for stage in Stage]
_TYPICAL_MS = np.array([30.0, 1.0, 60.0, 50.0, 35.0, 2.0, 1.0, 180.0, 2400.0, 4.0])


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Build a large history and time every query.")
    parser.add_argument("--runs", type=int, default=1000, help="number of runs")
    parser.add_argument("--rows", type=int, default=10_000_000, help="stage rows in all")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    pages, seconds = max(1, options.rows // options.runs // len(_STAGES)), list[float]()
    with tempfile.TemporaryDirectory(prefix="dsocr-bench-") as folder:
        for number in range(options.runs):
            start = time.perf_counter()
            write_made_up_run(Path(folder), number, pages)
            seconds.append(time.perf_counter() - start)
        # An executor says so when its process dies; a pool would start it anew for ever.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(measure, Path(folder)).result()
    late = missed(found)
    print(json.dumps({"write_run_ms": float(np.median(seconds)) * 1000, **found, "missed": late}))
    return 1 if late else 0


def missed(found: dict[str, Any]) -> list[str]:
    """Targets that were not reached."""
    figures = [(name, found[name], TARGETS[name]) for name in TARGETS if name in found]
    figures += [
        (query["name"], query["p95_ms"], TARGETS[f"{query['over']}_ms"]) for query in found["queries"]
    ]
    return [f"{name}: {value:.3g} > {most:g}" for name, value, most in figures if value > most]


def write_made_up_run(root: Path, number: int, pages: int) -> None:
    """Seeded times that look like a fortnight of work: every fifth run has both backends."""
    random = np.random.default_rng(number)
    backends = ("eager", "vendor") if number % 5 == 0 else ("eager",)
    each = max(1, pages // len(backends))
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=20 * number)
    record = RunRecord(
        id=f"made-up-{number:06d}", created=moment.isoformat(), source="dsocr", backends=backends,
        command="python -m dsocr_core run pages/", engine=("eager", "fast")[number % 2], device="cuda:0",
        gpu=("NVIDIA H200", "NVIDIA GeForce RTX 5090")[number % 3 == 0], host=f"host-{number % 4}",
        dtype="bfloat16", attention="sdpa", preset=("gundam", "small")[number % 7 == 0],
        profiled=number % 50 == 49, git_commit=f"{number // 10:040x}", versions={"torch": "2.13.0"},
        settings={"preset": "gundam", "infer": {"max_new_tokens": 8192, "no_repeat_ngram_size": 20}},
    )  # fmt: skip
    with RunDirectory.create(root, record) as run:
        for backend in backends:
            run.add_rows("readings", images := _images(random, each, backend))
            run.add_rows("stage_flops", _flops(random, images))
            run.add_rows("timings", _timings(random, each, backend, number))
        if number % 20 == 0:
            run.add_rows("kernels", _kernels(random))


def _table(count: int, columns: dict[str, Any]) -> pa.Table:
    """Columns of arrays, and of one value for all rows."""
    return pa.table(
        {
            name: pa.array(value) if isinstance(value, np.ndarray | list) else pa.repeat(value, count)
            for name, value in columns.items()
        }
    )


def _names(pages: int) -> np.ndarray:
    return np.array([f"invoices/page-{number:05d}.png" for number in range(pages)])


def _images(random: np.random.Generator, pages: int, backend: str) -> pa.Table:
    return _table(pages, {
        "page": _names(pages), "source": _names(pages), "backend": backend,
        "sha256": [f"{number:064x}" for number in range(pages)],
        "new_tokens": random.integers(50, 1200, pages), "width": 1240, "height": 1754, "preset": "gundam",
        "grid_columns": 2, "grid_rows": 3, "prompt_tokens": 913,
    })  # fmt: skip


def _flops(random: np.random.Generator, images: pa.Table) -> pa.Table:
    """Counts of a shape a page: as many as there can be."""
    shapes = [f"gundam 2x3, 913 + {new} tokens" for new in set(images["new_tokens"].to_pylist())]
    stages, kinds = [stage.value for stage in FIRST.computed], ["analytic", "measured", "least"]
    count = len(shapes) * len(stages) * len(kinds)
    flops = np.repeat(random.lognormal(26, 1, count // len(kinds)), len(kinds))
    return _table(count, {
        "shape": np.repeat(shapes, len(stages) * len(kinds)),
        "stage": np.tile(np.repeat(stages, len(kinds)), len(shapes)),
        "kind": kinds * (count // len(kinds)), "backend": images["backend"][0].as_py(), "flops": flops,
        "bytes": flops / 300,
    })  # fmt: skip


def _timings(random: np.random.Generator, pages: int, backend: str, number: int) -> pa.Table:
    slower = (4.0 if backend == "vendor" else 1.0) * (0.8 if number % 400 > 200 else 1.0)
    times = _TYPICAL_MS[None] * slower * random.lognormal(0, 0.2, (pages, len(_STAGES)))  # (P, S)
    return _table(times.size, {
        "page": np.repeat(_names(pages), len(_STAGES)), "backend": backend, "stage": _STAGES * pages,
        "milliseconds": times.ravel(), "calls": 1, "aggregate": "page",
        "inside_prefill": [stage in INSIDE_PREFILL for stage in Stage] * pages,
    })  # fmt: skip


def _kernels(random: np.random.Generator, count: int = 300) -> pa.Table:
    return _table(count, {
        "stage": ["prefill", "decode"] * (count // 2),
        "name": [f"void gemm_kernel<{number}>(float*)" for number in range(count)],
        "total_ns": random.lognormal(12, 2, count), "instances": random.integers(1, 9000, count),
    })  # fmt: skip


# --- in a fresh process -------------------------------------------------------------------------


def measure(root: Path) -> dict[str, Any]:
    """Open a history, let it take in new runs, ask everything `REPEATS` times."""
    os.environ["DSOCR_CACHE"] = str(root / f"cache-{os.getpid()}")
    build_s = _seconds(lambda: History(root).close())
    start = time.perf_counter()
    with History(root) as history:
        open_s, runs = time.perf_counter() - start, len(history)
        rows = int(history.sql("SELECT count(*) AS n FROM timings")["n"].iloc[0])
        queries = [_time_query(*case) for case in _cases(history)]
        refreshes = [_refresh_after_a_run(history, 900_000 + extra, rows // runs) for extra in range(3)]
        flops_s = _seconds(lambda: history.query("gap_stages"))
    return {
        "runs": runs, "stage_rows": rows, "build_s": build_s, "open_s": open_s, "refresh_s": max(refreshes),
        "flops_s": flops_s, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "queries": queries,
    }  # fmt: skip


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _refresh_after_a_run(history: History, number: int, rows: int) -> float:
    write_made_up_run(Path(history.storage.location), number, max(1, rows // len(_STAGES)))
    seconds = _seconds(history.refresh)
    assert f"made-up-{number:06d}" in history
    history.storage.remove(f"made-up-{number:06d}")
    history.refresh()
    return seconds


def _cases(history: History) -> Iterator[tuple[str, str, Callable[[int], object]]]:
    """(name, kind, what to ask the n-th time)."""
    ids = history.run_ids()
    random = np.random.default_rng(0)
    picks = [[ids[index] for index in random.choice(len(ids), 2, replace=False)] for _ in range(REPEATS)]
    ask = history.query
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
    pairs = [[(run, "eager") for run in pick] for pick in picks]
    yield "pairs and their intervals", "statistics", lambda n: compare_speed(history, *pairs[n])


def _time_query(name: str, over: str, ask: Callable[[int], object]) -> dict[str, Any]:
    times = [1000 * _seconds(lambda: ask(number)) for number in range(REPEATS)]  # noqa: B023
    p95 = float(np.quantile(times, 0.95))
    return {"name": name, "over": over, "median_ms": float(np.median(times)), "p95_ms": p95}


if __name__ == "__main__":
    sys.exit(main())
