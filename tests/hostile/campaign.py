"""Find what hangs, lies, leaks or ends in a traceback on hostile input: thousands of cases, by seed.

    python -m tests.hostile.campaign --minutes 20 --seed 1
    python -m tests.hostile.campaign --only pdfs --case 17

A case is refused with a DsocrError or taken; anything else is a finding: a traceback, a process that hung
for 20 s or died, more than 1 GB beyond what its process had, or a wrong success. Each generator has the same
time, in a process of its own. `--case` repeats one case in this process. A JSON document is printed; the
exit code is 1 where something was found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.page import decode_pool
from tests.hostile.checkpoints import checkpoints
from tests.hostile.pages import images, pdfs
from tests.hostile.runs import archives, profiles
from tests.hostile.texts import addresses, answers

Attempt = Callable[[Random, Path], str | None]
"""Makes one case and gives it to what reads it; says what was wrong with a success, if anything."""
_ALL: tuple[Attempt, ...] = images, pdfs, checkpoints, profiles, archives, addresses, answers
GENERATORS = {attempt.__name__: attempt for attempt in _ALL}
EXPECTED, LOST = ("refused", "accepted"), "hung or died"
HANG_S, MEMORY_BYTES, CPU_SECONDS = 20.0, 10**9, 2
"""Of a case; the last is the computing of a page, enough to see that the limit holds."""


def outcome(name: str, seed: int, number: int, folder: Path) -> dict[str, Any]:
    """How one case ended: refused, accepted, wrong success or traceback, or that it took much memory."""
    place, before = folder / f"case-{number}", _peak()
    place.mkdir()
    try:
        text = GENERATORS[name](Random(f"{seed} {name} {number}"), place) or ""
        end = "wrong success" if text else "accepted"
    except DsocrError as error:
        end, text = "refused", str(error)
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        end, text = "traceback", traceback.format_exc()
    shutil.rmtree(place, ignore_errors=True)
    if (grown := _peak() - before) > MEMORY_BYTES:
        end, text = "memory", f"{grown} bytes; {end}: {text}"
    return {"case": number, "end": end, "text": text[-2000:]}


def _peak() -> int:
    """The most resident bytes of this process and of a child that has ended, so far."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * sum(resource.getrusage(kind).ru_maxrss for kind in kinds)


def quiet(folder: str) -> None:
    """Begin a process for cases: what they write or print goes into the folder."""
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    with (Path(folder) / "output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    warnings.simplefilter("ignore")


def run_generator(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """One generator's cases in the time; a new process after each that hangs or dies."""
    until, numbers = time.monotonic() + seconds, itertools.count()
    ends, findings = Counter[str](), list[dict[str, Any]]()
    while time.monotonic() < until:
        with (
            tempfile.TemporaryDirectory(prefix="dsocr-hostile-", ignore_cleanup_errors=True) as folder,
            multiprocessing.get_context("fork").Pool(1, quiet, (folder,)) as pool,
        ):
            end = ""
            while end != LOST and time.monotonic() < until:
                number = next(numbers)
                try:
                    ended = pool.apply_async(outcome, (name, seed, number, Path(folder))).get(HANG_S)
                except multiprocessing.TimeoutError:
                    ended = {"case": number, "end": LOST}
                ends[end := ended["end"]] += 1
                findings += [ended] if end not in EXPECTED else []
    return {"generator": name, "ends": ends, "findings": findings}


def main() -> int:
    parser = argparse.ArgumentParser(description="Give hostile files to what reads them.")
    parser.add_argument("--minutes", type=float, default=1.0, help="time of all generators together")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same cases")
    parser.add_argument("--only", nargs="+", choices=GENERATORS, default=[*GENERATORS], help="of these")
    parser.add_argument("--case", type=int, help="repeat one case of the generator given by --only")
    options = parser.parse_args()
    decode_pool.CPU_SECONDS, names = CPU_SECONDS, options.only
    if options.case is not None:
        with tempfile.TemporaryDirectory(prefix="dsocr-hostile-") as folder:
            print(json.dumps(outcome(names[0], options.seed, options.case, Path(folder))))
        return 0
    found = [run_generator(name, options.minutes * 60 / len(names), options.seed) for name in names]
    print(json.dumps(found, indent=1))
    return int(any(one["findings"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
