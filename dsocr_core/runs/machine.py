"""Work beside a run while it was made: load, other programs' share of the CPU, the GPU's clocks and power.

The GPU is asked through nvidia-smi, which comes with the driver: no library is needed for it. What a machine
does not tell is left out, never 0.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

CONTENDED = 0.2
"""From this share of the machine's CPU time on, taken by other programs, a run's times are not its own."""
_SHORTEST_S = 1.0  # the clock ticks of a shorter time say nothing of others
_BUSY_PERCENT = 50
"""From this share of time with work on it, by its driver, a GPU is busy. While a model loads it is not."""
_MOST_LINES = 100_000  # lines of 27 hours, one a second
_GPU_FIELDS = {
    "clocks.sm": "gpu_sm_mhz", "clocks.mem": "gpu_memory_mhz", "power.draw": "gpu_power_w",
    "temperature.gpu": "gpu_temperature_c",
}  # fmt: skip
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, irq, softirq, steal; idle and iowait are left out."""


class CpuTime(NamedTuple):
    """Seconds of all cores together since the machine started."""

    at: float
    busy_s: float
    own_s: float  # CPU time of this process with all that it started


def cpu_time(proc: Path = Path("/proc")) -> CpuTime | None:
    """Read CPU times; None on a system other than Linux."""
    ticks, parents = {}, {}
    try:
        ticks_s = os.sysconf("SC_CLK_TCK")
        cells = (proc / "stat").read_bytes().partition(b"\n")[0].split()[1:]
        for entry in proc.iterdir():
            with suppress(OSError, ValueError, IndexError):  # it ended meanwhile, or is no process
                process, of = int(entry.name), (entry / "stat").read_bytes().rpartition(b")")[2].split()
                # User and system time of a process, and of its children that ended.
                parents[process], ticks[process] = int(of[1]), sum(map(int, of[11:15]))
        busy = sum(int(cells[column]) for column in _BUSY)
    except (AttributeError, OSError, ValueError, IndexError):
        return None
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return CpuTime(time.monotonic(), busy / ticks_s, sum(ticks.get(each, 0) for each in own) / ticks_s)


class MachineWatch:
    """Looks at the machine while a run is made, and at its first GPU: from its making to `facts`."""

    def __init__(self, gpu: bool = True) -> None:
        self._begin = cpu_time()
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._process: subprocess.Popen[str] | None = None
        fields = ",".join(("driver_version", "utilization.gpu", *_GPU_FIELDS))
        ask = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"]
        with suppress(OSError):  # it ends with its reader: a pipe that nobody has kills who writes to it
            if gpu:
                self._process = subprocess.Popen(
                    [*ask, "--loop-ms=1000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True, errors="replace",
                )  # fmt: skip
                weakref.finalize(self, self._process.kill)
                stream = self._process.stdout
                self._reading = threading.Thread(target=self._lines.extend, args=[stream], daemon=True)
                self._reading.start()

    def facts(self) -> Mapping[str, Any]:
        """End the watch: what a record's environment says of the machine."""
        facts: dict[str, Any] = {"cores": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 2)}
        begin, end = self._begin, cpu_time()
        if begin is not None and end is not None and (took := end.at - begin.at) >= _SHORTEST_S:
            others = (end.busy_s - begin.busy_s - end.own_s + begin.own_s) / took / (os.cpu_count() or 1)
            others = min(1.0, max(0.0, others))
            facts |= {"others_cpu_share": round(others, 3), "contended": others > CONTENDED}
        if self._process is not None:
            self._process.kill()
            self._reading.join()
            self._process.communicate()
        # Of the GPU the medians of the moments at which it was busy.
        rows = [[cell.strip() for cell in line.split(",")] for line in self._lines]
        busy = [row for row in rows if len(row) == 2 + len(_GPU_FIELDS) and _number(row[1]) >= _BUSY_PERCENT]
        facts |= {"driver": busy[0][0]} if busy else {}
        for at, name in enumerate(_GPU_FIELDS.values(), 2):
            if known := [number for row in busy if (number := _number(row[at])) >= 0]:
                facts[name] = round(statistics.median(known), 1)
        return facts


def _number(cell: str) -> float:
    """A cell's number; -1 for "[N/A]"."""
    try:
        return float(cell)
    except ValueError:
        return -1.0
