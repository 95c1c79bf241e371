"""Findings of a trace: figures by tensor and block, causes, the sentence. No tensors, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from dsocr_core.reading.jsonable import to_jsonable

CauseKind = Literal[
    "rounding", "weights", "mask_or_positions", "resize", "router_tie", "inputs", "other_operation"
]


@dataclass(frozen=True)
class TensorDifference:
    """One output on both sides. A figure is None where it means nothing (ids have no ULP)."""

    name: str
    call: int  # 0 is the prefill, then the decode steps
    view: int  # pass of the vision towers in that call: with tiles 0 is the tiles, 1 the global view
    elements: int
    differing_share: float  # share of the elements, 0 to 1
    max_ulp: int | None
    """Largest difference in ULP of the narrower type, at the larger of both values or of A's deviation."""
    relative_to_std: float | None  # largest difference over A's standard deviation
    error: float | None  # root mean square of the difference over A's standard deviation
    dtype_a: str
    dtype_b: str

    @property
    def differs(self) -> bool:
        return self.differing_share > 0


@dataclass(frozen=True)
class Cause:
    """Cause that the pattern of differences points at, at one name."""

    kind: CauseKind
    name: str
    words: str


@dataclass(frozen=True)
class RouterChange:
    """Tokens whose set of experts differs in one layer and call, and at how many it was a tie."""

    name: str
    call: int
    tokens: int
    changed: int
    ties: int


@dataclass(frozen=True)
class TraceSummary:
    """A and B on one page, `steps` decode steps with A's tokens. `tensors` in the order of computing."""

    page: str
    a: str
    b: str
    steps: int
    tensors: tuple[TensorDifference, ...]
    first: TensorDifference | None
    causes: tuple[Cause, ...]
    sentence: str
    routers: tuple[RouterChange, ...] = ()
    only_a: tuple[str, ...] = ()  # names that B has no output for
    only_b: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.first is None and bool(self.tensors)

    @property
    def compared(self) -> int:
        return len(self.tensors)

    @property
    def differing(self) -> int:
        return sum(row.differs for row in self.tensors)

    def document(self) -> dict[str, Any]:
        """Make what `trace --json` prints."""
        names, first = ("name", "call", "differing_share", "max_ulp", "relative_to_std"), self.first
        return {
            "equal": self.equal, "compared": self.compared, "differing": self.differing,
            "first": first and {name: getattr(first, name) for name in names},
            "causes": to_jsonable(self.causes),
        }  # fmt: skip


# --- the error that each block gives, step by step -------------------------------------------------

_BLOCK = re.compile(r"(\w+\.(?:block|layer)\d+)\.(.+)")


@dataclass(frozen=True)
class BlockError:
    """One block in one call. Its error is over A's standard deviation; None: not known."""

    block: str
    call: int
    error: float | None  # in what it gives, of its passes the largest
    max_ulp: int | None
    outputs: int
    differing: int


def block_of(name: str) -> str:
    return found[1] if (found := _BLOCK.fullmatch(name)) else name


def block_errors(summary: TraceSummary) -> dict[str, dict[int, BlockError]]:
    """Block -> call -> its errors, blocks in the order of computing."""
    grouped: dict[str, dict[int, list[TensorDifference]]] = {}
    for row in summary.tensors:
        grouped.setdefault(block_of(row.name), {}).setdefault(row.call, []).append(row)
    curve: dict[str, dict[int, BlockError]] = {}
    for block, calls in grouped.items():
        for call, rows in calls.items():
            # What the block gives, or the last of its parts where that has no tap.
            out = [row for row in rows if row.name in (block, f"{block}.out")] or rows[-1:]
            curve.setdefault(block, {})[call] = BlockError(
                block, call, max((row.error for row in out if row.error is not None), default=None),
                max((row.max_ulp for row in out if row.max_ulp is not None), default=None),
                len(rows), sum(row.differs for row in rows),
            )  # fmt: skip
    return curve
