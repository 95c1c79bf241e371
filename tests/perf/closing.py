"""Close histories and sessions while threads use them, and count what stays.

    python -m tests.perf.closing --seconds 60

History: eight threads query, refresh, record, and close what they share, which the next one opens again.
Sessions: threads read a page with both backends, and each session is closed while it reads. Prints one JSON
document; the exit code is 1 when something other than Closed or Cancelled was raised, or when a folder, a
process or a thread is left.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psutil

from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.base.uses import Closed

THREADS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description="Close histories and sessions while they are used.")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of each of the two")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        tempfile.tempdir = str(scratch)
        os.environ["DSOCR_CACHE"] = str(Path(folder) / "cache")
        found = {"history": _history(Path(folder), seconds), "sessions": _sessions(Path(folder), seconds)}
        found["left"] = {
            "folders": sorted(path.name for path in scratch.iterdir()),
            "processes": [words for words in _children() if "opener_process" not in words],  # one stays warm
            "threads": sorted(thread.name for thread in threading.enumerate() if _is_of_a_use(thread)),
        }
    print(json.dumps(found))
    wrong = found["history"]["raised"] or found["sessions"]["raised"] or any(found["left"].values())
    return 1 if wrong else 0


def _children() -> list[str]:
    return [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]


def _is_of_a_use(thread: threading.Thread) -> bool:
    return thread.name in ("history sql", "read") or thread.name.startswith("prepare")


def _repeat(act: Callable[[Random], str], seconds: float) -> dict[str, Any]:
    """Have threads act until the time is over; count what they did and what was raised."""
    done: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def work(seed: int) -> None:
        random = Random(seed)
        while time.monotonic() < until:
            try:
                done[act(random)] += 1
            except (Closed, Cancelled) as error:
                done[type(error).__name__] += 1
            except Exception as error:  # noqa: BLE001 - counted
                raised[f"{type(error).__name__}: {str(error)[:200]}"] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    return {"done": dict(done), "raised": dict(raised)}


def _history(folder: Path, seconds: float) -> dict[str, Any]:
    from dsocr_core.runs.store import SEED_LOCATION, History
    from tests.support.made_up_runs import timing, write_run

    def opened() -> History:
        return History(folder / "history", also=[SEED_LOCATION])

    shared, opening, numbers = [opened()], threading.Lock(), iter(range(1_000_000))
    acts: dict[str, Callable[[History], object]] = {
        "query": lambda history: history.query("stage_summary"),
        "runs": lambda history: history.runs(),
        "sql": lambda history: history.sql("SELECT count(*), avg(milliseconds) FROM stage_timings"),
        "record": lambda history: history.record(history.run_ids()[-1]),
        "tables": lambda history: history.tables(history.run_ids()[0]),
        "refresh": lambda history: history.refresh(),
        "note": lambda history: history.note(history.run_ids()[-1], "words"),
    }

    def act(random: Random) -> str:
        history, name = shared[0], random.choices([*acts, "write", "close"], [10] * len(acts) + [3, 3])[0]
        if name == "close":
            history.close()
            with opening:
                if shared[0] is history:
                    shared[0] = opened()
        elif name == "write":
            write_run(folder / "history", f"new-{next(numbers)}", [timing("p", "sam", 1.0)])
        else:
            acts[name](history)
        return name

    found = _repeat(act, seconds)
    shared[0].close()
    return found


def _sessions(folder: Path, seconds: float) -> dict[str, Any]:
    from dsocr_core.backends.backend import Opening
    from dsocr_core.read.session import Session
    from dsocr_core.settings import InferSettings, Settings

    settings = Settings(preset="tiny", device="cpu", checkpoint=str(EMBEDDED_CHECKPOINT), history="")
    settings = replace(settings, infer=InferSettings(max_new_tokens=40))
    page = PROJECT_ROOT / "data" / "samples" / "01-letter.png"
    request = settings.request(page, page.name)

    def opened() -> Session:
        return Session(settings, Opening(folder / "results", stores=False))

    shared, opening = [opened()], threading.Lock()

    def act(random: Random) -> str:
        session = shared[0]
        if random.random() < 0.1:
            time.sleep(random.random() * 3)  # some are closed while they load, others while they read
            session.close()
            with opening:
                if shared[0] is session:
                    shared[0] = opened()
            return "close"
        comparison = session.compare(request, random.choice((("a",), ("b",), ("a", "b"))))
        if comparison.errors:
            raise RuntimeError(str(comparison.errors))
        return "read"

    found = _repeat(act, seconds)
    shared[0].close()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
