"""The curve of a trace: the error that each block takes and gives, step by step. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dsocr_core.reading.trace_records import TensorDifference, TraceSummary

_BLOCK = re.compile(r"(\w+\.(?:block|layer)\d+)\.(.+)")
_BLOCK_NUMBER = re.compile(r"(?<=block)\d+|(?<=layer)\d+")
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
    """Share of the elements of what it gives that differ."""
    max_ulp: int | None
    outputs: int
    differing: int

    @property
    def added(self) -> float | None:
        """By how much the error grew in the block; below 0 where it shrank."""
        return None if self.carried is None or self.error is None else self.error - self.carried


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
            # What the block gives, or the last of its parts where that has no tap.
            out = [row for row in rows if row.name in (block, f"{block}.out")] or rows[-1:]
            error = max((row.error for row in out if row.error is not None), default=None)
            cell = BlockError(
                block, call, carried.get(call, 0.0), error, max(row.differing_share for row in out),
                max((row.max_ulp for row in out if row.max_ulp is not None), default=None),
                len(rows), sum(row.differs for row in rows),
            )  # fmt: skip
            curve.setdefault(block, {})[call] = cell
            carried[call] = error
    return curve


def shortened(names: Sequence[str], most: int = 12) -> str:
    """Names with the number of their block left out, each once: `decoder.layer.queries`."""
    short = dict.fromkeys(_BLOCK_NUMBER.sub("", name) for name in names)
    more = f" and {len(short) - most} more" if len(short) > most else ""
    return ", ".join(list(short)[:most]) + more


def steps_shown(steps: int) -> list[int]:
    """Calls to show of so many decode steps: the prefill, the first, the last and some between."""
    if steps < _MOST_STEPS:
        return list(range(steps + 1))
    between = [round(steps * number / (_MOST_STEPS - 1)) for number in range(1, _MOST_STEPS)]
    return list(dict.fromkeys([0, 1, *between]))
