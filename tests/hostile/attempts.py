"""The cases of one generator, one after the other, in a process of their own: started by campaign.py."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import resource
import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.page import decode_pool

CPU_SECONDS = 2
"""Computing of a page in these cases: as much is enough to see that the limit holds."""

Attempt = Callable[[Random, Path], str | None]
"""Makes one case and gives it to what reads it; says what was wrong with a success, if anything."""


def attempts(said: Connection, name: str, seed: int, first: int, folder: Path) -> None:
    """Tell the number of each case as it begins, and how it ended."""
    os.setpgid(0, 0)
    os.environ |= {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    with (folder / "output").open("wb") as output:  # whatever is printed by what is tried
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    warnings.simplefilter("ignore")
    decode_pool.CPU_SECONDS = CPU_SECONDS
    attempt = attempt_of(name)
    for number in itertools.count(first):
        said.send(number)
        said.send(outcome(attempt, f"{seed} {name}", number, folder))


def attempt_of(name: str) -> Attempt:
    found: Attempt = importlib.import_module(f"tests.hostile.{name}").attempt
    return found


def outcome(attempt: Attempt, seed: str, number: int, folder: Path) -> dict[str, Any]:
    """How one case ended: `end` is refused, accepted, wrong success or traceback; `grown` in bytes."""
    place = folder / f"case-{number}"
    place.mkdir()
    before = _memory_reset()
    ended = _ended(attempt, Random(f"{seed} {number}"), place)
    ended["grown"] = before.grown()
    shutil.rmtree(place, ignore_errors=True)
    return ended


def _ended(attempt: Attempt, random: Random, place: Path) -> dict[str, Any]:
    try:
        wrong = attempt(random, place)
    except DsocrError as error:
        return {"end": "refused", "text": str(error)[:500]}
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        return {"end": "traceback", "text": traceback.format_exc()[-2000:]}
    return {"end": "wrong success", "text": wrong[:2000]} if wrong else {"end": "accepted", "text": ""}


# --- memory -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Memory:
    """Peaks before a case: of this process, of its children (the decoders) and of children that ended."""

    own: int
    children: dict[int, int]
    ended: int

    def grown(self) -> int:
        """Bytes of this process and its children together beyond what they had. One that was started, or
        ended, in the case is counted whole.
        """
        now = _children()
        grown = max(0, _peak("self") - self.own)
        grown += sum(max(0, _peak(str(child)) - self.children.get(child, 0)) for child in now)
        # Of the children that were ended only the largest ever is known.
        ended = _largest_ended()
        return grown + (ended if ended > self.ended else 0)


def _memory_reset() -> _Memory:
    """The memory now; peaks count anew from here."""
    children = _children()
    for process in ("self", *map(str, children)):
        with contextlib.suppress(OSError):
            Path("/proc", process, "clear_refs").write_text("5", encoding="ascii")
    return _Memory(_peak("self"), {child: _peak(str(child)) for child in children}, _largest_ended())


def _children() -> list[int]:
    """Processes that any thread of this one started and that have not ended."""
    found: list[int] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def _largest_ended() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _peak(process: str) -> int:
    """The most resident memory of a process, 0 of one that is gone."""
    with contextlib.suppress(OSError):
        for line in Path("/proc", process, "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
