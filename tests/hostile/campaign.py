"""Find what hangs, lies, leaks or ends in a traceback on hostile input: thousands of cases, by seed.

    python -m tests.hostile.campaign --minutes 20 --seed 1
    python -m tests.hostile.campaign --only pdfs --case 17

Images, PDFs, texts of a model, checkpoints, recorded runs, profiles, archives, addresses and settings are
made at random and given to what reads them. A case is refused with a DsocrError or taken; anything else is a
finding: a traceback (or a process that died), more than 20 s, more than 1 GB beyond what its process had,
or a wrong success. Each generator has the same time, in a process of its own, which is ended when a case
hangs. `--case` repeats one case in this process. A JSON document is printed; the exit code is 1 where
something was found.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.page import decode_pool

MODULES = {
    "pages": ("images", "pdfs"), "checkpoints": ("checkpoints",), "runs": ("tables", "profiles", "archives"),
    "texts": ("markup", "addresses", "answers"),
}  # fmt: skip
GENERATORS = tuple(name for names in MODULES.values() for name in names)
HANG_S, START_S = 20.0, 120.0
"""Time of a case, and of the imports of a process on a machine with much else to do."""
MEMORY_BYTES = 10**9
EXPECTED = ("refused", "accepted")
CPU_SECONDS = 2
"""Computing of a page in these cases: as much is enough to see that the limit holds."""
Attempt = Callable[[Random, Path], str | None]
"""Makes one case and gives it to what reads it; says what was wrong with a success, if anything."""


# --- in the process of a generator ------------------------------------------------------------------


def attempts(said: Connection, name: str, seed: int, first: int, folder: Path) -> None:
    """Send a word when the imports are done, then how each case ended."""
    os.setpgid(0, 0)
    os.environ |= {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    with (folder / "output").open("wb") as output:  # whatever is printed by what is tried
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    warnings.simplefilter("ignore")
    decode_pool.CPU_SECONDS = CPU_SECONDS
    attempt = attempt_of(name)
    said.send({"end": "ready"})
    for number in itertools.count(first):
        said.send(outcome(attempt, f"{seed} {name}", number, folder))


def attempt_of(name: str) -> Attempt:
    module = next((module for module, names in MODULES.items() if name in names), name)
    found: Attempt = getattr(importlib.import_module(f"tests.hostile.{module}"), name)
    return found


def outcome(attempt: Attempt, seed: str, number: int, folder: Path) -> dict[str, Any]:
    """How one case ended: `end` is refused, accepted, wrong success or traceback; `grown` in bytes."""
    place = folder / f"case-{number}"
    place.mkdir()
    before = _peak()
    try:
        wrong = attempt(Random(f"{seed} {number}"), place)
        ended = {"end": "wrong success" if wrong else "accepted", "text": (wrong or "")[:2000]}
    except DsocrError as error:
        ended = {"end": "refused", "text": str(error)[:500]}
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        ended = {"end": "traceback", "text": traceback.format_exc()[-2000:]}
    shutil.rmtree(place, ignore_errors=True)
    return {**ended, "grown": _peak() - before}


def _peak() -> int:
    """The most resident bytes of this process and of a child that has ended, so far."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * sum(resource.getrusage(kind).ru_maxrss for kind in kinds)


# --- who starts and watches them ----------------------------------------------------------------------


def run_generator(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """One generator's cases in the time; a new process after each that hangs or dies."""
    until, number, slowest_s = time.monotonic() + seconds, 0, 0.0
    ends, findings = Counter[str](), list[dict[str, Any]]()
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-", ignore_cleanup_errors=True) as folder:
            ours, theirs = multiprocessing.Pipe()
            arguments = (theirs, name, seed, number, Path(folder))
            process = multiprocessing.get_context("spawn").Process(target=attempts, args=arguments)
            process.start()
            theirs.close()
            ended = _next(ours, START_S)
            while ended["end"] not in ("hang", "died") and time.monotonic() < until:
                began = time.monotonic()
                ended = _next(ours, HANG_S)
                slowest_s = max(slowest_s, time.monotonic() - began)
                ends[ended["end"]] += 1
                if ended["end"] not in EXPECTED or ended["grown"] > MEMORY_BYTES:
                    findings.append({"case": number, **ended})
                number += 1
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid or 0, signal.SIGKILL)  # with what it started
            process.kill()
            process.join()
    return {"generator": name, "ends": ends, "slowest_s": slowest_s, "findings": findings}


def _next(said: Connection, seconds: float) -> dict[str, Any]:
    try:
        return said.recv() if said.poll(seconds) else {"end": "hang"}
    except EOFError:
        return {"end": "died"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Give hostile files, texts and settings to what reads them.")
    parser.add_argument("--minutes", type=float, default=1.0, help="time of all generators together")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same cases")
    parser.add_argument("--only", nargs="+", choices=GENERATORS, default=GENERATORS, help="these generators")
    parser.add_argument("--case", type=int, help="repeat one case of the generator given by --only")
    options = parser.parse_args()
    names, seed = options.only, options.seed
    if options.case is not None:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-") as folder:
            print(json.dumps(outcome(attempt_of(names[0]), f"{seed} {names[0]}", options.case, Path(folder))))
        return 0
    found = [run_generator(name, options.minutes * 60 / len(names), seed) for name in names]
    print(json.dumps(found, indent=1))
    return int(any(one["findings"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
