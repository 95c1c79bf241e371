"""Accuracy where the truth is known: box F1, character error rate, reading order, for both sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsocr_core.errors import DsocrError
from dsocr_core.review.page import PageReview, PageSide


class TruthError(DsocrError):
    """A file of true answers that cannot be read; names it and the cause."""


@dataclass(frozen=True)
class TrueBlock:
    """One block of the true answer; corners in pixels of the EXIF-corrected page."""

    label: str
    box: tuple[float, float, float, float]
    text: str


@dataclass(frozen=True)
class TruePage:
    """A page's true answer, its blocks in reading order."""

    width: int
    height: int
    blocks: tuple[TrueBlock, ...]


Truth = dict[str, TruePage]
"""By file name of the page."""


@dataclass(frozen=True)
class Accuracy:
    """One side of a page against the truth; None where there is nothing to count."""

    box_f1: float | None
    """At IoU 0.75 and equal label, 0..1."""
    character_error_rate: float | None
    """Levenshtein distance per true character, markup left out."""
    order_distance: float | None
    """Edit distance of the found blocks' order per found block, 0..1."""


def sample_truth() -> Truth:
    """The samples' own ground truth."""
    raise NotImplementedError


def read_truth(path: Path) -> Truth:
    """A JSON file as `data/samples/ground_truth.json` or in OmniDocBench's form, 64 MiB at most.

    Raises TruthError.
    """
    raise NotImplementedError


def page_truth(truth: Truth, page: PageReview) -> TruePage | None:
    """The true answer of a page: by its name, its source or its path's file name, with the same page size."""
    raise NotImplementedError


def accuracy(side: PageSide | None, truth: TruePage | None) -> Accuracy | None:
    """How well a side read a page; None without a text or without the truth."""
    raise NotImplementedError
