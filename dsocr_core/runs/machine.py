"""Work beside a run while it was made: load, other programs' share of the CPU, the GPU's clocks and power.

The GPU is asked through nvidia-smi, which comes with the driver: no library is needed for it. What a machine
does not tell is left out, never 0.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTENDED = 0.2
"""From this share of the machine's CPU time on, taken by other programs, a run's times are not its own."""
TREE = "DSOCR_MACHINE_TREE"
"""Variable that names the process whose children are all one work, as a gate's benches are."""
_SHORTEST_S = 1.0
"""The clock ticks of a shorter time say nothing of others."""
_GPU_EVERY_S = 2.0
_GPU_FIELDS = {
    "clocks.sm": "gpu_sm_mhz", "clocks.mem": "gpu_memory_mhz", "power.draw": "gpu_power_w",
    "temperature.gpu": "gpu_temperature_c",
}  # fmt: skip
_GPU_TIMEOUT_S = 5
_TICKS_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, irq, softirq, steal; idle and iowait are left out."""


@dataclass(frozen=True)
class CpuTime:
    """Seconds of all cores together since the machine started."""

    at: float
    busy_s: float
    own_s: float
    """CPU time of this process and of those that it started."""


def cpu_time(proc: Path = Path("/proc")) -> CpuTime | None:
    """None where the system does not tell (it is Linux that does)."""
    try:
        cells = (proc / "stat").read_text().partition("\n")[0].split()[1:]
        busy = sum(int(cells[column]) for column in _BUSY)
        return CpuTime(time.monotonic(), busy / _TICKS_S, _own_ticks(proc) / _TICKS_S)
    except (OSError, ValueError, IndexError):
        return None


def _own_ticks(proc: Path) -> int:
    """User and system time of this process, its children that ended, and those that run.

    Where TREE names another process it is that one's.
    """
    ticks, parents = {}, {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                cells = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(cells[1])
                ticks[int(entry.name)] = sum(map(int, cells[11:15]))
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
    named = os.environ.get(TREE, "")
    own = {int(named) if named.isdigit() and int(named) in parents else os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(process, 0) for process in own)


def others_share(begin: CpuTime | None, end: CpuTime | None) -> float | None:
    """Share of other programs in the machine's CPU time between the two, 0 to 1; None when not known."""
    if begin is None or end is None or end.at - begin.at < _SHORTEST_S:
        return None
    there = (end.at - begin.at) * (os.cpu_count() or 1)
    others = (end.busy_s - begin.busy_s) - (end.own_s - begin.own_s)
    return min(1.0, max(0.0, others / there))


def gpu_state() -> dict[str, float]:
    """Clocks, power and temperature of the first GPU now; empty where there is none that tells."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return {}
    ask = [command, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for name, cell in zip(_GPU_FIELDS.values(), said.partition("\n")[0].split(","), strict=False):
        try:
            found[name] = float(cell)
        except ValueError:  # "[N/A]"
            continue
    return found


class MachineWatch:
    """Looks at the machine while a run is made: from its making to `facts`."""

    def __init__(self) -> None:
        self._begin = cpu_time()
        self._gpu: list[dict[str, float]] = []
        self._asked = -_GPU_EVERY_S

    def look(self) -> None:
        """To be called now and then while pages are read; asks the GPU every other second at most."""
        now = time.monotonic()
        if now - self._asked >= _GPU_EVERY_S:
            self._asked = now
            if state := gpu_state():
                self._gpu.append(state)

    def facts(self) -> Mapping[str, Any]:
        """Take what a record's environment says of the machine."""
        facts: dict[str, Any] = {"cores": os.cpu_count()}
        if hasattr(os, "getloadavg"):
            facts["load_1m"] = round(os.getloadavg()[0], 2)
        others = others_share(self._begin, cpu_time())
        if others is not None:
            facts |= {"others_cpu_share": round(others, 3), "contended": others > CONTENDED}
        for name in _GPU_FIELDS.values():
            if seen := [state[name] for state in self._gpu if name in state]:
                facts[name] = round(statistics.median(seen), 1)
        return facts
