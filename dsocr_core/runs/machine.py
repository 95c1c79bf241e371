"""Work beside a run while it was made: the machine's load, and other programs' share of its CPU.

What a machine does not tell is left out, never 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

CONTENDED = 0.2
"""From this share of the machine's CPU time on, taken by other programs, a run's times are not its own."""
_SHORTEST_S = 1.0
"""The clock ticks of a shorter time say nothing of others."""
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, irq, softirq, steal; idle and iowait are left out."""


class CpuTime(NamedTuple):
    """Seconds of all cores together since the machine started."""

    at: float
    busy_s: float
    own_s: float
    """CPU time of this process with all that it started."""


def cpu_time(proc: Path = Path("/proc")) -> CpuTime | None:
    """Read CPU times; None on a system other than Linux."""
    ticks, parents = {}, {}
    try:
        ticks_s = os.sysconf("SC_CLK_TCK")
        cells = (proc / "stat").read_text().partition("\n")[0].split()[1:]
        for entry in proc.glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
                of = (entry / "stat").read_text().rpartition(")")[2].split()
                # User and system time of a process, and of its children that ended.
                parents[int(entry.name)], ticks[int(entry.name)] = int(of[1]), sum(map(int, of[11:15]))
        busy = sum(int(cells[column]) for column in _BUSY)
    except (AttributeError, OSError, ValueError, IndexError):
        return None
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return CpuTime(time.monotonic(), busy / ticks_s, sum(ticks.get(each, 0) for each in own) / ticks_s)


class MachineWatch:
    """Looks at the machine while a run is made, from its making to `facts`."""

    def __init__(self) -> None:
        self._begin = cpu_time()

    def facts(self) -> Mapping[str, Any]:
        """What a record's environment says of the machine."""
        facts: dict[str, Any] = {"cores": os.cpu_count()}
        if hasattr(os, "getloadavg"):
            facts["load_1m"] = round(os.getloadavg()[0], 2)
        begin, end = self._begin, cpu_time()
        if begin is not None and end is not None and (took := end.at - begin.at) >= _SHORTEST_S:
            others = (end.busy_s - begin.busy_s - end.own_s + begin.own_s) / took / (os.cpu_count() or 1)
            others = min(1.0, max(0.0, others))
            facts |= {"others_cpu_share": round(others, 3), "contended": others > CONTENDED}
        return facts
