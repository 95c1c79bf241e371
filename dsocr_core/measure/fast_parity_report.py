"""Figures of the fast engine's parity, their verdict and tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from dsocr_core.base.console import titled_table

LISTED = 20
"""Most misses or pages that a report names."""

ERROR_ALLOWANCE = 1.1
"""Most that the mean error may be over the eager engine's: two roundings of one sum differ."""


@dataclass(frozen=True)
class Agreement:
    """One way of decoding, fed the eager engine's tokens on all pages."""

    name: str
    positions: int
    misses: int
    margins: tuple[float, ...]
    """Between the eager engine's two best logits at each miss, the largest first; of `LISTED` at most."""
    error: float
    """Mean over positions of the logits' distance from the oracle's, by the oracle's length."""
    error_max: float
    eager_error: float
    eager_error_max: float

    @property
    def holds(self) -> bool:
        """The error is no larger than the eager engine's own."""
        return self.error <= self.eager_error * ERROR_ALLOWANCE or self.error < 1e-5


@dataclass(frozen=True)
class Distance:
    """Two ways running freely, page by page."""

    name: str
    pages: int
    equal: int
    tokens: float
    """Edits a token of the second's, mean over pages."""
    text: float
    """Edits a character, coordinates included."""
    clean: float
    """Without them."""
    boxes_pass: int
    """Pages that meet the rule for boxes."""
    differing: tuple[str, ...]
    """The names of the pages whose tokens are not equal; of `LISTED` at most."""


@dataclass(frozen=True)
class Repeat:
    """The same pages again."""

    name: str
    pages: int
    equal: int


@dataclass(frozen=True)
class FastParity:
    device: str
    checkpoint: str
    dtype: str
    tokens: int
    agreements: tuple[Agreement, ...]
    distances: tuple[Distance, ...]
    repeats: tuple[Repeat, ...]

    @property
    def passes(self) -> bool:
        """Errors within the eager engine's, every run the same. Free runs are shown, not judged."""
        return all(a.holds for a in self.agreements) and all(r.equal == r.pages for r in self.repeats)

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"passes": self.passes}

    def print(self, console: Console) -> None:
        fed = titled_table("Fed the eager engine's tokens", "Way", "Positions", "Misses", "Largest margin",
                        "Error", "Largest", "Eager's", "Largest")  # fmt: skip
        for a in self.agreements:
            margin = f"{a.margins[0]:.3g}" if a.margins else "-"
            errors = (a.error, a.error_max, a.eager_error, a.eager_error_max)
            fed.add_row(a.name, str(a.positions), str(a.misses), margin, *(f"{e:.3e}" for e in errors))
        free = titled_table("Running freely", "Ways", "Pages", "Equal", "Edits/token", "Edits/character",
                      "No coordinates", "Boxes pass")  # fmt: skip
        for d in self.distances:
            rates = (f"{rate:.2%}" for rate in (d.tokens, d.text, d.clean))
            free.add_row(d.name, str(d.pages), str(d.equal), *rates, str(d.boxes_pass))
        again = titled_table("The same pages again", "Way", "Pages", "Equal")
        for r in self.repeats:
            again.add_row(r.name, str(r.pages), str(r.equal))
        for table in (fed, free, again):
            console.print(table)
        for d in self.distances:
            if d.differing:
                console.print(f"{d.name}: other tokens on {', '.join(d.differing)}", markup=False)
        console.print("passes" if self.passes else "does not pass", style="green" if self.passes else "red")
