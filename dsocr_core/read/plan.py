"""Plan of a run: its pages, and where it writes. It is checked before anything heavy is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.reading.records import SIDES, Side

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.settings import Settings


@dataclass(frozen=True)
class RunPlan:
    """Pages to read and how."""

    images: tuple[Path, ...]  # image files, PDF files and folders of them
    directory: Path  # the run directory
    sides: tuple[Side, ...] = SIDES[:1]  # A alone reads pages; both are compared
    pages: str | None = None  # pages of PDF files, like `1-3,7`; None is all
    recursive: bool = False  # True to read folders below given ones too
    resume: bool = False
    """Skip what `directory` has from the same file under the same settings; try again what failed there."""
    batch: int | None = None  # pages that the fast engine reads together; None is as many as fit
    together: int | None = None  # most pages of one prompt; None reads each page by itself
    slots: int | None = None  # slots of the batch whatever the number of pages; None chooses by it
    spans: int = 0  # number of spans of each backend that the report shows
    command: str | None = None  # the command line that makes the run again, for its record
    found: Pages | None = None  # the pages of `images`, where they were looked for already

    def look_up(self, settings: Settings) -> Pages:
        """The pages, those of one prompt together. Raises DsocrError."""
        from dsocr_core.page.documents import expand

        rendered, limits = self.directory / "pages", (settings.pdf_dpi, settings.max_pixels)
        found = self.found or expand(self.images, self.pages, rendered, *limits, self.recursive)
        return found if self.together is None else found.together(self.together)


def new_run_directory(command: str) -> Path:
    """The path of a run directory that is not there yet, named by the time of day in UTC."""
    return RUNS_DIRECTORY / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{command}"
