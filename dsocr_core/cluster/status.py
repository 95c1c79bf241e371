"""How far an output is, from any machine that sees it: no Dask, no worker is asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dsocr_core.cluster.figures import Figures
from dsocr_core.cluster.output import Output
from dsocr_core.errors import DsocrError
from dsocr_core.history.sharded import COMPLETE, Marker
from dsocr_core.history.storage.store import StorageError


@dataclass(frozen=True)
class Status:
    """Pages of a run by what became of them; `pages` is what is planned so far."""

    pages: int
    done: int
    """Read well."""
    failed: int
    quarantined: int
    pages_per_s: float | None
    complete: bool
    """Everything is listed, and every page is done, failed or quarantined."""

    @property
    def left(self) -> int:
        return self.pages - self.done - self.failed - self.quarantined

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"pages_per_s": self.pages_per_s and round(self.pages_per_s, 3)}


class StatusReader:
    """Reads an output again and again, each time only what is new."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.figures = Figures()
        self._seen: dict[str, tuple[str, Marker | None]] = {}
        """The marker of each shard that is counted; the marker itself where it may be replaced."""
        self._parts: dict[str, int] = {}
        self._pages: int | None = None

    def read(self) -> Status:
        """Raises DsocrError where there is no run."""
        if not self._seen:
            self.output.run()
        pages, complete = self._planned()
        names = self.output.marker_names()
        new = {name: shard for shard, name in names.items() if self._seen.get(shard, ("",))[0] != name}
        for marker in self.output.markers(new):
            before = self._seen.get(marker.shard, ("", None))[1]
            if marker.generation and before is None and (first := self._first_of(marker)) is not None:
                self.figures.add(first)
                before = first
            self.figures.add(marker, before)
            # Only what failed is read again: most markers need not stay in memory.
            stays = marker if marker.failed or marker.quarantined else None
            self._seen[marker.shard] = (marker.name, stays)
        figures = self.figures
        complete = complete and figures.pages == pages
        return Status(pages, figures.read, figures.failed, figures.quarantined, figures.pages_per_s, complete)

    def _first_of(self, marker: Marker) -> Marker | None:
        """Who read the shard first, for the speed of the workers."""
        return self.output.marker(f"done/{marker.shard}.json")

    def _planned(self) -> tuple[int, bool]:
        if self._pages is None and (complete := self.output.document(COMPLETE)) is not None:
            self._pages = int(complete["pages"])
        if self._pages is not None:
            return self._pages, True
        for name in self.output.plan_parts():
            if name not in self._parts:
                self._parts[name] = len(self.output.plan_part(name))
        return sum(self._parts.values()), False


def read_status(location: str) -> Status:
    """How far the output at a path or URL is. Raises DsocrError."""
    try:
        return StatusReader(Output(location)).read()
    except StorageError as error:
        raise DsocrError(f"{error}; check the address and the way there") from error
