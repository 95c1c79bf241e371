"""A review: opened on recorded runs, its pages worst first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.review.page import Letter, PageDetail, PageReview
from dsocr_core.review.verdicts import Verdicts


class ReviewError(DsocrError):
    """A review that cannot be opened, or a page it does not have; says what to give instead."""


@dataclass(frozen=True)
class Side:
    """One side: a road of a recorded run."""

    letter: Letter
    record: RunRecord
    road: str | None
    name: str
    """For people: the road where both sides are of one run, else the run's id (and its road)."""


@dataclass(frozen=True)
class PagePicture:
    """Where a page's picture is. `with_boxes`: the only one left is the artifact with boxes drawn on it."""

    path: Path
    with_boxes: bool
    width: int
    """Pixels after EXIF orientation; the coordinates of all boxes of the page."""
    height: int


class Review:
    """Opened by `open_review`. Immutable but for the verdicts; any thread may read it."""

    a: Side
    b: Side
    key: str
    """Names the review in addresses and in the rows of verdicts: `RUN`, or `RUN_A..RUN_B` with roads where
    they are not the usual ones."""
    pages: tuple[PageReview, ...]
    """Worst first."""
    verdicts: Verdicts

    def page(self, name: str) -> PageReview:
        """Raises ReviewError when there is no such page."""
        raise NotImplementedError

    def detail(self, name: str) -> PageDetail:
        """All that the viewer and the tabs show of one page; a few ms, kept for the last pages asked for."""
        raise NotImplementedError

    def picture(self, name: str) -> PagePicture | None:
        """The page's picture: its source file where that is still the recorded one, else the run's artifact.

        None when there is neither. Hashes the file, reads nothing else.
        """
        raise NotImplementedError

    def stages(self) -> pd.DataFrame:
        """`history.statistics.compare_stages` of both sides' times, plus the row "total".

        Columns stage, n, median_a, median_b, ratio (B over A), low, high, verdict (of B against A).
        Empty when the sides have no page's times in common.
        """
        raise NotImplementedError

    def settings(self) -> pd.DataFrame:
        """Settings, environment and versions of both sides: section, name, a, b, equal."""
        raise NotImplementedError


def open_review(
    history: History,
    run_a: str,
    run_b: str | None = None,
    road_a: str | None = None,
    road_b: str | None = None,
) -> Review:
    """Open a review on a run that has both roads (ours is A, the vendor's B), or on two runs.

    Of two runs the road "ours" is taken where the run has it, else its only one, unless told. B is the
    reference. Pages find each other by name, then by content of the image, then by name without suffix; an
    output folder of the vendor, one page under another name, is matched with the only page that is left.
    Raises ReviewError or HistoryError.
    """
    raise NotImplementedError


def review_key(
    run_a: str, run_b: str | None = None, road_a: str | None = None, road_b: str | None = None
) -> str:
    """The key of a review before it is opened, for addresses."""
    raise NotImplementedError


def parse_key(key: str) -> tuple[str, str | None, str | None, str | None]:
    """(run_a, run_b, road_a, road_b) of a key. Raises ReviewError on anything else."""
    raise NotImplementedError


def page_image(picture: PagePicture, max_pixels: int) -> Image.Image:
    """The picture as RGB, EXIF applied, bounded. Raises DsocrError when it cannot be read."""
    raise NotImplementedError
