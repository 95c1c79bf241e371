"""Rows of a measurement: each timed the same way and printed as it comes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch

from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.measure.device import copy_bandwidth, milliseconds

_HEADINGS = f"{'':34} {'ms':>9} {'spread':>8} {'times':>5} {'all, ms':>9} {'GB/s':>7} {'of copy':>8}"


class Rows:
    """Times calls on a CUDA device beside its measured copy. Prints to stdout.

    Raises FastEngineUnavailableError on a machine that cannot run the fast engine.
    """

    def __init__(self) -> None:
        require_fast_engine("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device("cuda")
        self.copy_bytes_per_s = copy_bandwidth(self.device)
        torch.cuda.empty_cache()
        name, copied = torch.cuda.get_device_name(self.device), self.copy_bytes_per_s / 1e12
        say(f"{name}, torch {torch.__version__}, copy {copied:.2f} TB/s")

    def table(self, title: str) -> None:
        """Begin rows of their own."""
        say(f"\n{title}\n{_HEADINGS}")

    def row(
        self,
        name: str,
        run: Callable[[], object],
        *,
        repeat: int = 5,
        per: int = 1,
        count: int = 1,
        before: Callable[[], object] = lambda: None,
        bytes: int | None = None,
        note: Callable[[float], str] = lambda ms: "",
    ) -> None:
        """Time `run`, which is `per` of what the row is about, after `before`; `note` takes the ms."""
        times = []
        for _ in range(repeat):
            before()
            times.append(milliseconds(run, self.device) / per)
        ms = statistics.median(times)
        moved = (bytes or 0) / ms * 1e3
        rates = f"{moved / 1e9:7.0f} {moved / self.copy_bytes_per_s:8.1%}" if bytes else " " * 16
        spread = max(times) - min(times)
        say(f"{name:34} {ms:9.4f} {spread:8.4f} {count:5} {ms * count:9.3f} {rates} {note(ms)}".rstrip())


say = partial(print, flush=True)
"""Print a line at once."""


def each(runs: list[Callable[[], None]]) -> None:
    """Call all of them."""
    for run in runs:
        run()
