"""Outcome of everything that was to be imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dsocr_core.runs.importers.imported import Skipped
from dsocr_core.runs.importers.reading import clean

WORDS = {
    "dsocr": "runs of this project",
    "llm-perf-opt": "runs of llm-perf-opt",
    "nsys": "profiles of Nsight Systems",
    "ncu": "profiles of Nsight Compute",
    "torch": "profiles of torch.profiler",
    "sweep": "analytic sweeps",
    "": "other files",
}
"""Sources of runs in words; what belongs to none of them comes last."""
_MOST_REASONS = 3


@dataclass(frozen=True)
class Taken:
    """A run that was found."""

    run_id: str
    source: str
    origin: Path


@dataclass(frozen=True)
class Outcome:
    """Outcome of everything of one source."""

    kind: str
    """In words."""
    imported: int
    known: int
    skipped: Counter[str]
    """Files that were not taken, by reason."""

    @property
    def line(self) -> str:
        """All of it in one line; of many reasons the most frequent."""
        parts = [f"{self.imported} imported"] if self.imported else []
        parts += [f"{self.known} there already"] if self.known else []
        if count := self.skipped.total():
            named = [f"{number} {reason}" for reason, number in self.skipped.most_common(_MOST_REASONS)]
            more = count - sum(number for _, number in self.skipped.most_common(_MOST_REASONS))
            named += [f"{more} for other reasons"] if more else []
            parts.append(f"{count} file{'s' if count != 1 else ''} not taken ({'; '.join(named)})")
        return f"{self.kind}: {', '.join(parts)}"


@dataclass
class ImportReport:
    """Outcome of everything under the given paths."""

    imported: list[Taken] = field(default_factory=list)
    known: list[Taken] = field(default_factory=list)
    """Runs that the history had before."""
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Runs and files that are named."""
        return len(self.imported) + len(self.known) + len(self.skipped)

    def add(self, other: ImportReport, named: Callable[[Path], Path]) -> None:
        """Take over another report; `named` tells what its paths are called here."""
        for mine, theirs in ((self.imported, other.imported), (self.known, other.known)):
            mine += [replace(run, origin=named(run.origin)) for run in theirs]
        self.skipped += [replace(item, path=named(item.path)) for item in other.skipped]

    def kinds(self) -> list[Outcome]:
        """Sum up what was taken and what not, by source in the order of `WORDS`; without those of nothing."""
        found = []
        for source, words in WORDS.items():
            reasons = Counter(item.reason for item in self.skipped if item.kind == source)
            imported = sum(run.source == source for run in self.imported)
            known = sum(run.source == source for run in self.known)
            if imported or known or reasons:
                found.append(Outcome(words, imported, known, reasons))
        return found

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        imported, known = (
            [{"run_id": run.run_id, "source": run.source, "origin": clean(str(run.origin))} for run in taken]
            for taken in (self.imported, self.known)
        )
        return {
            "imported": imported,
            "known": known,
            "skipped": [{"path": clean(str(item.path)), "reason": item.reason} for item in self.skipped],
            "kinds": [asdict(kind) | {"skipped": dict(kind.skipped)} for kind in self.kinds()],
        }
