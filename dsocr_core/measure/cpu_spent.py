"""CPU time that a page takes: of the server's process, and of the browser's main thread for the page."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass
class Spent:
    """CPU milliseconds; the server's are None where the system does not tell."""

    server_ms: float | None = None
    browser_ms: float | None = None


def median(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None when none is."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


class CpuOf:
    """Reads both clocks for one page of a browser and the server of a process id."""

    def __init__(self, page: Page, pid: int | None) -> None:
        self._pid = pid
        self._devtools = page.context.new_cdp_session(page)
        # CPU time, not time: beside other programs the two differ.
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    @contextmanager
    def spent(self) -> Iterator[Spent]:
        """Filled in when the block ends."""
        found = Spent()
        server, browser = _process_ms(self._pid), self._thread_ms()
        yield found
        after = _process_ms(self._pid)
        found.server_ms = None if server is None or after is None else after - server
        found.browser_ms = self._thread_ms() - browser

    def _thread_ms(self) -> float:
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        return 1000 * next(float(item["value"]) for item in metrics if item["name"] == "TaskDuration")


def _process_ms(pid: int | None) -> float | None:
    """CPU time of a process so far; None where the system does not tell (it is Linux that does)."""
    try:
        cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(cells[11]) + int(cells[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
