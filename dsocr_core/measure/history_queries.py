"""How fast the history is at size: made-up runs in a temporary directory, every page's queries timed.

    dsocr measure history --runs 1000

Each size is opened by a fresh process, so its memory and its time to open are those of a start of the app
(the files are in the page cache, as they are where runs are made).
"""

from __future__ import annotations

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
from rich.console import Console

from dsocr_core.console import FAILED, OK
from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.history.statistics import compare_stages
from dsocr_core.history.store import History
from dsocr_core.history.writer import RunWriter
from dsocr_core.measure.history_report import HistoryReport, Measured, QueryTime
from dsocr_core.stages import INSIDE_PREFILL, Stage

SIZES = (0.1, 0.3, 1.0)
"""Shares of all runs at which everything is timed, to show how it grows."""

_STAGES = [stage.value for stage in Stage]
_TYPICAL_MS = np.array([30.0, 1.0, 60.0, 35.0, 2.0, 1.0, 180.0, 2400.0, 4.0])
_REPEATS = 20


def run(runs: int, rows: int, directory: Path | None, console: Console, as_json: bool) -> int:
    """Measure and print tables or one JSON document; returns the exit code: 1 when a target is missed."""
    report = bench(runs, rows, lambda words: print(words, file=sys.stderr), directory)
    if as_json:
        print(json.dumps(report.document()))
    else:
        report.print(console)
    return FAILED if report.missed else OK


def bench(runs: int, rows: int, say: Callable[[str], None], directory: Path | None = None) -> HistoryReport:
    """Build the history step by step in a new directory inside `directory` and time it at each size.

    Deletes what it built. Raises DsocrError where nothing can be written.
    """
    if directory is not None and not directory.is_dir():
        raise DsocrError(f"{directory}: no such directory; give --directory one that exists")
    with tempfile.TemporaryDirectory(prefix="dsocr-bench-", dir=directory) as folder:
        root, written, seconds, sizes = Path(folder), 0, list[float](), list[Measured]()
        for share in SIZES:
            count = max(2, round(runs * share))
            say(f"writing runs {written + 1} to {count}")
            for number in range(written, count):
                start = time.perf_counter()
                write_made_up_run(root, number, pages=max(1, rows // runs // len(_STAGES)))
                seconds.append(time.perf_counter() - start)
            written = count
            say(f"timing {count} runs")
            # An executor says so when its process dies; a pool would start it anew for ever.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                sizes.append(process.submit(measure, root, _REPEATS).result())
        return HistoryReport(float(np.median(seconds)) * 1000, sizes)


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
    with RunWriter(root, record) as run:
        for backend in backends:
            run.add("images", _images(random, each, backend))
            run.add("stage_timings", _timings(random, each, backend, number))
        if number % 20 == 0:
            run.add("kernels", _kernels(random))


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
            "prompt_tokens": pa.repeat(913, pages),
            "new_tokens": pa.array(tokens),
            "backend": pa.repeat(backend, pages),
        }
    )


def _timings(random: np.random.Generator, pages: int, backend: str, number: int) -> pa.Table:
    slower = (4.0 if backend == "vendor" else 1.0) * (0.8 if number % 400 > 200 else 1.0)
    times = _TYPICAL_MS[None] * slower * random.lognormal(0, 0.2, (pages, len(_STAGES)))  # (P, S)
    inside = [stage in INSIDE_PREFILL for stage in Stage]
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


def measure(root: Path, repeats: int) -> Measured:
    """Open a history, let it take in new runs, ask everything so many times."""
    before = _resident_mb()
    start = time.perf_counter()
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
    return Measured(runs, rows, open_s, max(refreshes), idle, memory, queries)


def _refresh_after_a_run(history: History, number: int, rows: int) -> float:
    root = Path(history.storage.location)
    write_made_up_run(root, number, max(1, rows // len(_STAGES)))
    start = time.perf_counter()
    assert history.refresh() == 1
    seconds = time.perf_counter() - start
    history.storage.remove("runs", f"made-up-{number:06d}")
    history.refresh()
    return seconds


def _cases(history: History, repeats: int) -> Iterator[tuple[str, str, Callable[[int], int]]]:
    """(name, kind, what to ask the n-th time: returns how many rows came)."""
    ids = history.run_ids()
    random = np.random.default_rng(0)
    picks = [[ids[index] for index in random.choice(len(ids), 2, replace=False)] for _ in range(repeats)]

    def ask(name: str, **parameters: Any) -> int:
        return len(history.query(name, **parameters)[0])

    backend = {"backend": "eager", "stage": "decode"}
    yield "runs", "history", lambda _: ask("runs")
    yield (
        "runs, filtered",
        "history",
        lambda _: ask("runs", gpus=["NVIDIA H200"], engines=["fast"], text="page"),
    )
    yield "filter_values", "history", lambda _: ask("filter_values")
    yield "stage_summary, all runs", "history", lambda _: ask("stage_summary")
    yield "trend", "history", lambda _: ask("trend", **backend)
    yield "page_trend", "history", lambda n: ask("page_trend", page=f"invoices/page-{n:05d}.png", **backend)
    yield "throughput", "history", lambda _: ask("throughput")
    yield "kernels, all runs", "history", lambda _: ask("kernels", run_ids=ids, top=1)
    yield "stage_summary", "run", lambda n: ask("stage_summary", run_ids=picks[n][:1])
    yield "page_timings", "run", lambda n: ask("page_timings", run_ids=picks[n][:1])
    yield "page_totals", "run", lambda n: ask("page_totals", run_ids=picks[n][:1])
    yield "facts", "run", lambda n: ask("facts", run_ids=picks[n])
    yield "differences", "run", lambda n: ask("differences", run_ids=picks[n])
    yield "pages", "run", lambda n: ask("pages", run_ids=picks[n][:1])
    yield "kernels", "run", lambda n: ask("kernels", run_ids=[ids[20 * n % len(ids)]])
    sides = [{"a": a, "b": b, "backend_a": "eager", "backend_b": "eager"} for a, b in picks]
    yield "pairs", "run", lambda n: ask("pairs", **sides[n])
    yield "coverage", "run", lambda n: ask("coverage", **sides[n])
    yield (
        "pairs and their intervals",
        "statistics",
        lambda n: len(compare_stages(history.query("pairs", **sides[n])[0])),
    )


def _time_query(history: History, repeats: int, name: str, kind: str, ask: Callable[[int], int]) -> QueryTime:
    times, rows = [], 0
    for number in range(repeats):
        start = time.perf_counter()
        rows = ask(number)
        times.append((time.perf_counter() - start) * 1000)
    return QueryTime(name, kind, rows, float(np.median(times)), float(np.quantile(times, 0.95)))


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
