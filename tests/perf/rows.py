"""Rows of a measurement: each timed the same way and printed as it comes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch

from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.measure.device import copy_bandwidth, matmul_rate, milliseconds

_HEADINGS = (
    f"{'':34} {'ms':>9} {'spread':>8} {'times':>5} {'all, ms':>9} {'GB/s':>7} {'of copy':>8} {'TFLOP/s':>8} "
    f"{'of product':>10}"
)


class Rows:
    """Times calls on a CUDA device beside its measured copy and, if asked, product. Prints to stdout.

    Raises FastEngineUnavailableError on a machine that cannot run the fast engine.
    """

    def __init__(self, product: bool = False) -> None:
        require_fast_engine("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device("cuda")
        self.copy_bytes_per_s = copy_bandwidth(self.device)
        self.matmul_flops_per_s = matmul_rate(self.device) if product else None
        torch.cuda.empty_cache()
        rate = self.matmul_flops_per_s
        words = f", products {rate / 1e12:.0f} TFLOP/s" if rate else ""
        name, copied = torch.cuda.get_device_name(self.device), self.copy_bytes_per_s / 1e12
        say(f"{name}, torch {torch.__version__}, copy {copied:.2f} TB/s{words}")

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
        flops: int | None = None,
        note: Callable[[float], str] = lambda ms: "",
    ) -> None:
        """Time `run`, which is `per` of what the row is about, after `before`; `note` takes the ms."""
        times = []
        for _ in range(repeat):
            before()
            times.append(milliseconds(run, self.device) / per)
        ms = statistics.median(times)
        moved, done, product = (bytes or 0) / ms * 1e3, (flops or 0) / ms * 1e3, self.matmul_flops_per_s
        cells = [
            f"{name:34} {ms:9.4f} {max(times) - min(times):8.4f} {count:5} {ms * count:9.3f}",
            f"{moved / 1e9:7.0f} {moved / self.copy_bytes_per_s:8.1%}" if bytes else " " * 16,
            f"{done / 1e12:8.1f}" if flops else " " * 8,
            f"{done / product:10.1%} " if flops and product else " " * 11,
        ]
        say(" ".join([*cells, note(ms)]).rstrip())


say = partial(print, flush=True)
"""Print a line at once."""


def each(runs: list[Callable[[], None]]) -> None:
    """Call all of them."""
    for run in runs:
        run()
