"""The plan of a run: its inputs listed once, PDFs counted by the workers, and cut into shards.

What is planned is written before it is read. A run that goes on lists its inputs again and compares them with
the plan, page by page: other inputs would be other shards.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import Job, OtherJob
from dsocr_core.cluster.listing import is_pdf, list_files
from dsocr_core.cluster.output import SHARDS_A_PART, OnPause, Output, patiently
from dsocr_core.cluster.shards import PageRef, Shard, cut
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import COMPLETE

T = TypeVar("T")
Counts = Callable[[], Sequence[int | None]]
"""Waits for the pages of some PDFs; None is one that cannot be counted."""
StartCount = Callable[[Sequence[str]], Counts]

FILES_TOGETHER = 64
COUNTS_AHEAD = 4


@dataclass(frozen=True)
class Planning:
    """Needs of planning."""

    output: Output
    job: Job
    start_count: StartCount
    on_pause: OnPause
    cancel: CancelToken | None = None

    def shards(self, files: Iterable[str]) -> Iterator[Shard]:
        """Every shard of the run in order, each in the stored plan by then.

        Raises OtherJob when the inputs are others than they were, ListingError.
        """
        output, job = self.output, self.job
        stored = self._patiently(output.plan_parts)
        complete = self._patiently(lambda: output.document(COMPLETE))
        pages = shards = part = 0
        found = cut(self._pages(files, complete is not None), job.shard_pages, job.digest)
        while some := list(itertools.islice(found, SHARDS_A_PART)):
            if part >= len(stored):
                self._patiently(lambda part=part, some=some: output.write_plan(part, some))  # type: ignore[misc]
            part, shards = part + 1, shards + len(some)
            pages += sum(len(shard.pages) for shard in some)
            yield from some
        if complete is None:
            self._patiently(lambda: output.complete_plan(pages, shards))

    def _patiently(self, do: Callable[[], T]) -> T:
        return patiently(do, self.on_pause, self.cancel)

    def _pages(self, files: Iterable[str], complete: bool) -> Iterator[PageRef]:
        numbers = itertools.count()
        before = _Before(self.output, complete)
        for path, count in self._counted(files, before):
            for page in [None] if count is None else range(1, count + 1):
                yield PageRef(next(numbers), path, page)
        before.check_end()

    def _counted(self, files: Iterable[str], before: _Before) -> Iterator[tuple[str, int | None]]:
        """Each file with its pages: those of the stored plan, else counted by workers, some files ahead."""
        waiting: deque[tuple[list[str], dict[str, int | None], list[str], Counts]] = deque()
        remaining = iter(files)
        while True:
            while len(waiting) < COUNTS_AHEAD and (some := list(itertools.islice(remaining, FILES_TOGETHER))):
                known = before.take(some)
                unknown = [path for path in dict.fromkeys(some) if is_pdf(path) and path not in known]
                waiting.append((some, known, unknown, self.start_count(unknown) if unknown else list))
            if not waiting:
                return
            some, known, unknown, counts = waiting.popleft()
            known |= dict(zip(unknown, counts(), strict=True))
            for path in some:
                yield path, known.get(path)


class _Before:
    """The files of the stored plan, to be met in the same order."""

    def __init__(self, output: Output, complete: bool) -> None:
        self._location, self._complete = output.store.location, complete
        self._files = _files_of(output)
        self._next = next(self._files, None)
        self._met = 0

    def take(self, paths: Sequence[str]) -> dict[str, int | None]:
        """List the pages of these files that the plan has; those that it does not have yet are left out."""
        known: dict[str, int | None] = {}
        for path in paths:
            self._met += 1
            if self._next is None:
                if self._complete:
                    raise self._other(f"had {self._met - 1:,} files, now there is {path}")
                continue
            planned, count = self._next
            if planned != path:
                raise self._other(f"had {planned} as file {self._met:,}, now it is {path}")
            self._next = next(self._files, None)
            # The last PDF of a plan that was not completed may have lost some of its pages.
            if self._next is not None or self._complete:
                known[path] = count
        return known

    def check_end(self) -> None:
        if self._next is not None:
            raise self._other(f"had {self._next[0]}, which is not there now")

    def _other(self, words: str) -> OtherJob:
        return OtherJob(f"{self._location}: its inputs have changed: it {words}; give another --out")


def _files_of(output: Output) -> Iterator[tuple[str, int | None]]:
    """The files of the stored plan, PDFs with their pages."""
    path, count = "", 0
    for _, page in output.planned():
        if page.page is None or page.page == 1:
            if path:
                yield path, count or None
            path, count = page.path, 0
        count += page.page is not None
    if path:
        yield path, count or None


_AHEAD = 64
_POLL_S = 0.25


class ShardQueue:
    """The shards of a job that are not done. Its thread ends when `stopping` is set."""

    def __init__(
        self,
        planning: Planning,
        job: Job,
        done: Container[str],
        on_planned: Callable[[int, bool], None],
        stopping: threading.Event,
    ) -> None:
        """`done` are names of committed shards; `on_planned` is told pages, and whether these are all."""
        self._planning, self._job, self._done = planning, job, done
        self._on_planned, self._stopping = on_planned, stopping
        self._planned: queue.Queue[Shard | DsocrError | None] = queue.Queue(_AHEAD)
        self.ended = False
        """True once everything was planned, and taken."""
        threading.Thread(target=self._plan, name="plan", daemon=True).start()

    def next(self) -> Shard | None:
        """A shard, if one is planned by now. Raises what planning raises."""
        if self.ended:
            return None
        try:
            found = self._planned.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, DsocrError):
            raise found
        self.ended = found is None
        return found

    def _plan(self) -> None:
        pages = 0
        try:
            for shard in self._planning.shards(list_files(self._job.inputs)):
                pages += len(shard.pages)
                self._on_planned(pages, False)
                if shard.name not in self._done:
                    self._put(shard)
            self._on_planned(pages, True)
            self._put(None)
        except Cancelled:
            pass
        except DsocrError as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001 - told on the driver's own thread
            self._put(DsocrError(f"the inputs could not be planned: {one_line(error)}"))

    def _put(self, found: Shard | DsocrError | None) -> None:
        while not self._stopping.is_set():
            try:
                self._planned.put(found, timeout=_POLL_S)
                return
            except queue.Full:
                continue
