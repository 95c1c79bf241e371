"""Findings of a trace: figures by tensor, causes, the sentence. No tensors, no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

CauseKind = Literal[
    "rounding", "weights", "mask_or_positions", "resize", "router_tie", "inputs", "other_operation"
]


@dataclass(frozen=True)
class TensorDifference:
    """One output on both sides. A figure is None where it means nothing (ids have no ULP)."""

    name: str
    call: int
    """0 is the prefill, then the decode steps."""
    view: int
    """Pass of the vision towers in that call: with tiles 0 is the tiles, 1 the global view."""
    elements: int
    differing_share: float
    """Share of the elements, 0 to 1."""
    max_ulp: int | None
    """Largest difference in units in the last place: of the narrower number type, at the larger of both
    values or at A's standard deviation, whichever is greater. Rounded up."""
    relative_to_std: float | None
    """Largest difference over A's standard deviation."""
    error: float | None
    """Root mean square of the difference over A's standard deviation."""
    dtype_a: str
    dtype_b: str

    @property
    def differs(self) -> bool:
        return self.differing_share > 0

    def document(self) -> dict[str, Any]:
        """As `trace --json` names the first difference."""
        names = ("name", "call", "differing_share", "max_ulp", "relative_to_std")
        return {name: getattr(self, name) for name in names}


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
    only_a: tuple[str, ...] = ()
    """Names that B has no output for."""
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
        return {
            "equal": self.equal,
            "compared": self.compared,
            "differing": self.differing,
            "first": None if self.first is None else self.first.document(),
            "causes": [asdict(cause) for cause in self.causes],
        }
