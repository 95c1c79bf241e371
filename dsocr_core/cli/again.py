"""`compare RUN --again`: which pages a recorded run has, and under which settings they are read again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.settings import Settings, SettingsError, settings_of

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.results import Readings

_MOST_TOGETHER = 256
_HOW = ("engine", "checkpoint", "device", "dtype", "attention", "rotary")
"""Settings of the second reading that win over the run's where they are on the command line."""
_WHERE = ("vendor", "history", "tolerance", "clean_pages", "draft", "a", "b")
"""Settings that are the command line's."""


@dataclass(frozen=True)
class Recorded:
    """A recorded run to read again."""

    backend: str | None
    pages: Pages
    settings: Settings
    batch: int
    """Pages that are read together, as they were: together they round differently from one alone."""


def recorded_run(
    location: str, run: str, backend: str | None, images: Sequence[str], given: Settings, typed: str
) -> Recorded:
    """Find what a run of the history read. `images` are where its pages are now, by name.

    `backend` is whose texts are compared; `typed` is the command line. Raises DsocrError.
    """
    from dsocr_core.runs.history import SEED_LOCATION, History
    from dsocr_core.runs.results import readings

    with History(location, SEED_LOCATION) as history:
        if run not in history:
            raise DsocrError(f"the history at {location} has no run '{run}'; see: dsocr history list")
        record = history.record(run)
        read = readings(history, run, with_steps=False)
    names = [name for _, name in read.requests]
    chosen = next((name for name in (backend, *record.backends, *names) if name in names), None)
    if chosen is None or backend not in (None, chosen):
        there = ", ".join(sorted({str(name) for name in names}))
        raise DsocrError(f"run {run} has no backend '{backend or ''}'; it has {there}")
    settings = _settings(record, given, typed)
    return Recorded(chosen, _pages(read, chosen, images, settings), settings, batch_of(read, chosen))


def batch_of(read: Readings, backend: str | None) -> int:
    """Give the number of pages that the run read together, as most of its results say."""
    found = Counter(
        result.environment.get("batch", "1") for (_, of), result in read.results.items() if of == backend
    )
    number = max(found, key=lambda each: found[each], default="1")
    known = number.isascii() and number.isdigit()
    return max(1, min(int(number[:9]), _MOST_TOGETHER)) if known else 1


def _settings(record: RunRecord, given: Settings, typed: str) -> Settings:
    """The run's settings, with those of the command line that say how to read. Raises DsocrError."""
    if record.source != "dsocr" or not record.settings:
        raise DsocrError(
            f"run {record.id} does not say with which settings it was read: give its pages to compare"
        )
    try:
        recorded = settings_of(record.settings)
    except DsocrError as error:
        raise DsocrError(f"run {record.id}: {error}") from error
    words, usual = {word.partition("=")[0] for word in shlex.split(typed)}, Settings()
    names = [each.name for each in fields(Settings)]
    changed = {name for name in names if getattr(given, name) != getattr(usual, name)}
    if others := sorted(changed - {*_HOW, *_WHERE}):
        raise SettingsError(
            f"--{others[0].replace('_', '-')} is not for --again: the pages are read as run {record.id} asked"
        )
    how = {name: getattr(given, name) for name in _HOW if name in changed or f"--{name}" in words}
    if "checkpoint" not in how and (PROJECT_ROOT / recorded.checkpoint).exists():
        how["checkpoint"] = str(PROJECT_ROOT / recorded.checkpoint)
    a = given.a or (None if "engine" in how else recorded.a)
    where = {name: getattr(given, name) for name in _WHERE} | {"a": a, "b": None}
    return replace(recorded, **where, **how)


def _pages(read: Readings, backend: str | None, images: Sequence[str], settings: Settings) -> Pages:
    """The run's pages, where they are now. Raises DsocrError."""
    from dsocr_core.page.documents import Pages, expand
    from dsocr_core.review.pictures import source_of

    requests = {page: request for (page, of), request in read.requests.items() if of == backend}
    if not images:
        sources = {page: source_of(request.image, request.file) for page, request in requests.items()}
        return Pages.recorded(sources)
    found = expand(images, None, None, settings.pdf_dpi, settings.max_pixels, recursive=True).only(requests)
    if not len(found):
        raise DsocrError(
            f"none of the given files is called like a page of the run, as '{next(iter(requests))}'"
        )
    return found
