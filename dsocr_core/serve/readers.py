"""Readers of the pages that are asked for: one after another, or many together in the fast engine's slots."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.source import Work
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest, OcrResult


@dataclass(eq=False)
class Job:
    """A page that was asked for. `on_end` is called once, on a thread of the reader."""

    request: OcrRequest
    observer: Observer
    on_begin: Callable[[], None]
    on_end: Callable[[OcrResult | BaseException], None]
    cancel: CancelToken = field(default_factory=CancelToken)


class PageReader(Protocol):
    """Reads jobs on threads of its own."""

    def submit(self, job: Job) -> None: ...

    def close(self) -> None: ...


class OneByOne:
    """One page at a time, in the order they came; the text is passed on token by token."""

    def __init__(self, backend: EngineBackend) -> None:
        self._backend = backend
        self._pool = ThreadPoolExecutor(1, "read")
        self._closing = CancelToken()
        self._reading: Job | None = None

    def submit(self, job: Job) -> None:
        try:
            self._pool.submit(self._read, job)
        except RuntimeError:  # closed
            job.on_end(Cancelled())

    def _read(self, job: Job) -> None:
        self._reading = job
        try:
            if job.cancel.is_set() or self._closing.is_set():
                raise Cancelled
            job.on_begin()
            result = self._backend.read(job.request, job.observer, job.cancel)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who asked hears of it
            job.on_end(error)
        else:
            job.on_end(result)

    def close(self) -> None:
        """End the page that is read; those who wait hear of it."""
        self._closing.set()
        if (job := self._reading) is not None:
            job.cancel.set()
        self._pool.shutdown()


class Together:
    """Many pages at a time: a page takes a slot when one is free and gives it back at its end.

    A page's text comes when the page ends. One whose client has gone is read to its end, and dropped. Slots
    have the size of the first page's limit; one that needs more waits until they are empty, and gets larger
    ones.
    """

    def __init__(self, backend: EngineBackend, slots: int) -> None:
        self._backend, self._slots = backend, slots
        self._stop = CancelToken()
        self._source = _Queue(backend, self._stop)
        self._thread = threading.Thread(target=self._run, name="read", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._source.put(job)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._source.begin()
            try:
                self._backend.read_many(self._source, self._source.end, self._slots, self._stop)
            except Cancelled:
                pass
            except BaseException as error:  # noqa: BLE001 - those who wait hear of it, others are read
                self._source.fail(error)
        self._source.fail(Cancelled())

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class _Queue:
    """The source of a run that goes on as long as pages of a size come."""

    def __init__(self, backend: EngineBackend, stop: CancelToken) -> None:
        self._backend, self._stop = backend, stop
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._reading: set[Job] = set()
        self._next: Job | None = None
        self._largest: int | None = None
        self.exhausted = False

    def put(self, job: Job) -> None:
        self._jobs.put(job)
        if self._stop.is_set():  # the run has ended, or hears of it as the others do
            self.fail(Cancelled())

    def begin(self) -> None:
        """A new run, whose slots have the size of its first page."""
        self.exhausted, self._largest = False, None

    def take(self, timeout_s: float) -> Work | None:
        while not self.exhausted:
            job, self._next = self._next, None
            try:
                job = job or self._jobs.get(block=timeout_s > 0, timeout=timeout_s or None)
            except queue.Empty:
                return None
            if job.cancel.is_set():
                job.on_end(Cancelled())
                continue
            needs = _size(job.request)
            if self._largest is not None and needs > self._largest:
                self._next, self.exhausted = job, True  # the run ends; the next one has larger slots
                return None
            try:
                prepared = self._backend.prepare(job.request)
            except BaseException as error:  # noqa: BLE001 - who asked hears of it
                job.on_end(error)
                continue
            self._largest = self._largest or needs
            self._reading.add(job)
            job.on_begin()
            return Work(job, job.request, prepared)
        return None

    def end(self, key: object, outcome: OcrResult | DsocrError) -> None:
        """A page ended."""
        assert isinstance(key, Job)
        self._reading.discard(key)
        key.on_end(Cancelled() if key.cancel.is_set() else outcome)

    def fail(self, error: BaseException) -> None:
        """The run ended before its pages did."""
        jobs, self._reading = self._reading, set()
        if self._stop.is_set():
            waiting, self._next = self._next, None
            jobs |= {waiting} if waiting else set()
            with contextlib.suppress(queue.Empty):
                while True:
                    jobs.add(self._jobs.get_nowait())
        for job in jobs:
            job.on_end(error)


def _size(request: OcrRequest) -> int:
    """More for a page that may need a larger slot."""
    from dsocr_core.engine.fast.batch_reader import most_image_tokens

    most = len(request.images) * most_image_tokens(request.resolution, request.family.newline)
    return most + len(request.prompt) + (request.max_new_tokens or 0)
