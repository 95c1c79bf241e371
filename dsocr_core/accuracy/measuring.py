"""Every page of a ground truth against the texts of a side, on several processes where there are many."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from PIL import Image

from dsocr_core.accuracy.ground_truth import GroundTruth, TruePage
from dsocr_core.accuracy.markdown import benchmark_text
from dsocr_core.accuracy.scores import PageScore, Total, score_page, total
from dsocr_core.base.errors import Cancelled
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.texts.by_name import ByName
from dsocr_core.runs.texts.prediction import Found, PredictionError

_WORTH_PROCESSES = 32
"""Pages from which other processes are started: each takes a second to be there."""


@dataclass
class Side:
    """One side's figures, by image."""

    label: str
    scores: dict[str, PageScore] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Pages without a text, and why. The benchmark leaves them out of its means."""
    not_asked_for: tuple[str, ...] = ()
    """Texts that belong to no page of the ground truth."""
    left: tuple[str, ...] = ()
    """Files that gave no text, with the reason."""

    @property
    def total(self) -> Total:
        return total(self.scores.values())


def measure(
    truth: GroundTruth,
    found: Found,
    label: str,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
    cancel: CancelToken | None = None,
) -> Side:
    """Score how a side read the pages of a ground truth. Raises Cancelled.

    `progress` is called once a page.
    """
    side = Side(label)
    texts = ByName(found)
    work: list[tuple[TruePage, str]] = []
    for page in truth.pages:
        try:
            work.append((page, _text_of(texts, page.image)))
        except PredictionError as error:
            side.missing[page.image] = str(error)
            if progress is not None:
                progress()
    for page, score in _scored(work, workers, cancel):
        side.scores[page.image] = score
        if progress is not None:
            progress()
    side.not_asked_for = tuple(each.name for each in texts.not_asked_for())
    side.left = tuple(f"{item.file.name}: {item.reason}" for item in found.left)
    return side


def _text_of(texts: ByName, image: str) -> str:
    """A page's Markdown, by the names that the benchmark looks for, too."""

    def no_picture() -> Image.Image:
        raise PredictionError(f"{image}: its text cannot be told by its name")

    for name in (image, image[:-4], image[:-4].replace(".pdf", "")):
        if texts.has(name):
            return benchmark_text(texts.text_of(name, no_picture))
    return benchmark_text(texts.text_of(image, no_picture))


def _scored(
    work: list[tuple[TruePage, str]], workers: int, cancel: CancelToken | None
) -> Iterator[tuple[TruePage, PageScore]]:
    if workers == 1 or len(work) < _WORTH_PROCESSES:
        for page, text in work:
            _stop(cancel)
            yield page, score_page(page, text)
        return
    context = multiprocessing.get_context("spawn")  # threads may run here already
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: dict[Future[PageScore], TruePage] = {}
        try:
            yield from _spread(pool, work, waiting, workers, cancel)
        finally:
            for future in waiting:
                future.cancel()


def _spread(
    pool: ProcessPoolExecutor,
    work: Iterable[tuple[TruePage, str]],
    waiting: dict[Future[PageScore], TruePage],
    workers: int,
    cancel: CancelToken | None,
) -> Iterator[tuple[TruePage, PageScore]]:
    """Scores as they come, a few pages ahead of the processes."""
    pages = iter(work)
    while True:
        while len(waiting) < 4 * workers and (item := next(pages, None)) is not None:
            waiting[pool.submit(score_page, *item)] = item[0]
        if not waiting:
            return
        done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        _stop(cancel)
        for future in done:
            yield waiting.pop(future), future.result()


def _stop(cancel: CancelToken | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled
