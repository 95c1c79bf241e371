"""Many pages through one or both backends, into a run directory.

What a run holds in memory does not grow with its pages: a few pages are prefetched, each result is on disk
soon after it is there, and the report keeps figures.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial

from dsocr_core.base.errors import DsocrError
from dsocr_core.page.documents import Pages, expand
from dsocr_core.read.loop import Outcome, read_each, read_together
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.prefetch import PageReader, PageToRead
from dsocr_core.read.progress import Watch
from dsocr_core.read.recorders import Recorders, RunDirectory
from dsocr_core.read.report import Report
from dsocr_core.read.session import Session
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.record import flattened
from dsocr_core.runs.recording import Recording
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)

MOST_TOGETHER = 256
"""Pages that are read together where no number is given, if the device's memory holds them."""


def read_pages(
    session: Session,
    plan: RunPlan,
    progress: Watch,
    run: Recording | None = None,
    cancel: CancelToken | None = None,
) -> Report:
    """Read every page and write the run directory, each page as it finishes.

    `run` writes there, and ends with this. The fast engine reads up to `plan.batch` pages together, and they
    finish in any order; everything else reads one after another, in order. A page that fails is recorded with
    its error and the others go on. Raises DsocrError for what concerns all pages (no such path, a directory
    that another run writes into), Cancelled when `cancel` is set: what was finished by then is written.
    """
    if plan.resume and not plan.directory.is_dir():
        raise DsocrError(f"{plan.directory}: no such run directory; give the one to go on with, or --out")
    settings, sides = session.settings, plan.sides
    backends = tuple(settings.backend(side) for side in sides)
    run = run or Recording(settings, plan.command, out=plan.directory, save=False)
    with RunDirectory(plan.directory, run, session, backends) as directory:
        rendered, limits = plan.directory / "pages", (settings.pdf_dpi, settings.max_pixels)
        found = plan.found or expand(plan.images, plan.pages, rendered, *limits, recursive=plan.recursive)
        found = found if plan.together is None else found.together(plan.together)
        # What is wrong for every page is raised once, before the first one.
        session.check(sides, plan.together is not None)
        session.expect(sides, [found.name(number) for number in range(len(found))])
        done = directory.done() if plan.resume else frozenset()
        report = Report(backends, plan.spans)
        progress.start(len(found))
        recorders = Recorders(settings, [directory, report, progress])
        taken_up = PageReader(session, found, sides, done)
        with closing(_outcomes(session, plan, taken_up, found, progress, cancel)) as outcomes:
            for page, comparison in outcomes:
                recorders.take(page, comparison)
    report.left_over = session.left_over(sides)
    if done and not report.skipped:
        log.warning("%s: none of its pages was read from these files under these settings", plan.directory)
    if report.read and not report.boxes and len(sides) == 1:
        again = shlex.join(["compare", *found.words(0), *_setting_words(settings)])
        log.warning("no page of this run has a box; check with: python -m dsocr_core %s", again)
    return report


_OF_ALL = ("history", "backends", "a", "b")


def _setting_words(settings: Settings) -> list[str]:
    """Give the settings that are not the defaults as options of `compare`."""
    usual, words = dict(flattened(asdict(Settings()))), list[str]()
    for name, value in flattened(asdict(replace(settings, a=None, b=None, backends={}))):
        if name not in _OF_ALL and value is not None and value != usual.get(name):
            words += [f"--{name.replace('_', '-')}", value]
    if settings.a is not None:
        own = {"spec": settings.a} if isinstance(settings.a, str) else settings.a
        words += ["--a", str(own["spec"])]
        for name in own.keys() - {"spec"}:
            words += [f"--a.{name}", str(own[name])]
    return words


def _outcomes(
    session: Session,
    plan: RunPlan,
    reader: PageReader,
    found: Pages,
    progress: Watch,
    cancel: CancelToken | None,
) -> Generator[Outcome[Comparison]]:
    """Pages as they end: together where A alone reads many at once."""
    first = session.side(plan.sides[0])
    many = len(plan.sides) == 1 and first.reads_many
    slots = plan.slots or slots_for(len(found), plan.batch) if many else 1
    concurrency = session.concurrency(plan.sides)

    def read(page: PageToRead, stop: CancelToken) -> Comparison:
        # Of several pages at once a line cannot tell.
        names = {side: session.side(side).name for side in plan.sides if concurrency == 1}
        observers = {side: progress.observer(f"{page.source} {name}") for side, name in names.items()}
        return session.compare(page.request, plan.sides, observers, stop, prepared=page.prepared)

    if slots > 1:
        # The first sizes the slots: the one of most pages, where several stand in a prompt.
        order = sorted(range(len(found)), key=lambda number: -len(found.names(number)))
        read_many = partial(session.read_many, plan.sides[0])
        yield from read_together(reader.read, order, read_many, slots, cancel)
    else:
        # A drafted page is read for its speed; the times of others are nobody else's.
        beside = many and bool(first.settings.draft)
        yield from read_each(reader.read, len(found), read, concurrency, cancel, beside)


def slots_for(pages: int, batch: int | None) -> int:
    """Choose how many pages to read together: a power of two where no number is given, so that runs are
    alike.
    """
    most = batch or MOST_TOGETHER
    return max(1, min(most, 1 << max(0, pages - 1).bit_length()))
