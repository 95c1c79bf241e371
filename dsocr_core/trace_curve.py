"""The curve of a trace: the error that each block takes and gives, step by step. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dsocr_core.trace_records import TensorDifference, TraceSummary

_BLOCK = re.compile(r"((?:sam\.block|clip\.block|decoder\.layer)\d+)\.(.+)")
_MOST_STEPS = 6


@dataclass(frozen=True)
class BlockError:
    """One block in one call. Errors are root mean squares over A's standard deviation; None: not known."""

    block: str
    call: int
    carried: float | None
    """In what the block takes from the one before."""
    error: float | None
    """In what it gives, of its passes the largest."""
    share: float
    """Largest share of differing elements in any of its outputs."""
    max_ulp: int | None
    outputs: int
    differing: int

    @property
    def added(self) -> float | None:
        """By how much the error grew in the block; below 0 where it shrank."""
        return None if self.carried is None or self.error is None else self.error - self.carried

    @property
    def words(self) -> str:
        if not self.differing:
            return "equal"
        ulp = "" if self.max_ulp is None else f", {self.max_ulp:,} ULP"
        return f"{_figure(self.carried)} > {_figure(self.error)} ({100 * self.share:.2g}%{ulp})"


def block_of(name: str) -> str:
    found = _BLOCK.fullmatch(name)
    return found[1] if found else name


def block_errors(summary: TraceSummary) -> dict[str, dict[int, BlockError]]:
    """Block -> call -> its errors, blocks in the order of computing."""
    grouped: dict[str, dict[int, list[TensorDifference]]] = {}
    for row in summary.tensors:
        grouped.setdefault(block_of(row.name), {}).setdefault(row.call, []).append(row)
    carried: dict[int, float | None] = {}
    curve: dict[str, dict[int, BlockError]] = {}
    for block, calls in grouped.items():
        for call, rows in calls.items():
            error = _given(block, rows)
            figures = [row.max_ulp for row in rows if row.max_ulp is not None]
            cell = BlockError(
                block, call, carried.get(call, 0.0), error, max(row.differing_share for row in rows),
                max(figures, default=None), len(rows), sum(row.differs for row in rows),
            )  # fmt: skip
            curve.setdefault(block, {})[call] = cell
            carried[call] = error
    return curve


def _given(block: str, rows: list[TensorDifference]) -> float | None:
    """The error of the block's own output, or of the last of its parts where that has no tap."""
    out = [row for row in rows if row.name in (block, f"{block}.out")] or rows[-1:]
    return max((row.error for row in out if row.error is not None), default=None)


def steps_shown(steps: int) -> list[int]:
    """Calls to show of so many decode steps: the prefill, the first, the last and some between."""
    if steps < _MOST_STEPS:
        return list(range(steps + 1))
    between = [round(steps * number / (_MOST_STEPS - 1)) for number in range(1, _MOST_STEPS)]
    return list(dict.fromkeys([0, 1, *between]))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
