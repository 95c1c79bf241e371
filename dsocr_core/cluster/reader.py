"""A worker's side of its reader process: started, fed, watched, replaced when it dies.

Pieces of two shards are read at the same time, so that the engine's batch never drains; a suspect piece is
read when nothing else is, so that it is known what a death is the fault of.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 - its defaults are in Dask's configuration then

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import Child, ChildGone, module_command, module_environment
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.shards import PageRef
from dsocr_core.reading.records import result_from_jsonable
from dsocr_core.runs.sharded import PageReading

_TRIM = "MALLOC_TRIM_THRESHOLD_"


def child_environment() -> dict[str, str]:
    """This process's, without the allocator's threshold where it is Dask's.

    Dask has the allocator of its workers give every free page back at once. An engine takes the same memory
    for each page it reads: with that setting a page cost a third more time (docs/performance.md).
    """
    by_dask = dask.config.get(f"distributed.nanny.pre-spawn-environ.{_TRIM}", None)
    is_dasks = os.environ.get(_TRIM) == str(by_dask)
    return {name: value for name, value in os.environ.items() if name != _TRIM or not is_dasks}


MODULE = "dsocr_core.cluster.reader_process"
LOAD_LIMIT_S = 900.0
_WATCH_S = 0.2
_STOP_S = 5.0
_TAIL = 200
"""Characters of what a process said last."""
MOST_STARTS = 3
"""Starts of a process, or of a worker, that is killed while it starts."""


class ReaderError(DsocrError):
    """No page can be read here: names the cause."""


@dataclass(frozen=True)
class Limits:
    """Limits of a page before its process is ended."""

    page_s: float = 300.0
    """Seconds in which no page of those that were begun ends."""
    memory_bytes: int = 0
    """Memory of the process; 0 is no limit."""


@dataclass(frozen=True)
class PieceRead:
    """Outcome of a piece."""

    pages: tuple[PageReading, ...]
    unread: tuple[int, ...] = ()
    """Numbers of the pages that a death left."""
    started: tuple[int, ...] = ()
    """Those of them that the process had begun."""
    cause: str = ""


@dataclass
class _Waiting:
    """A piece in the process."""

    pages: dict[int, PageRef]
    """By the number that the process knows them by."""
    read: list[PageReading] = field(default_factory=list)
    began: set[int] = field(default_factory=set)
    death: str | None = None

    @property
    def over(self) -> bool:
        return self.death is not None or not self.pages


class Turns:
    """Pieces at the same time, or one alone: who is alone waits for the others, and they for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together, self._alone, self._asked = 0, False, 0

    @contextlib.contextmanager
    def take(self, alone: bool) -> Iterator[None]:
        with self._changed:
            if alone:
                self._asked += 1
                self._changed.wait_for(lambda: not self._together and not self._alone)
                self._asked -= 1
                self._alone = True
            else:
                self._changed.wait_for(lambda: not self._alone and not self._asked)
                self._together += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._together -= 1
                self._changed.notify_all()


class Reader:
    """The reader process of one worker, and what is in it. Thread-safe."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        batch: int | None,
        limits: Limits,
        folder: Path,
        module: str = MODULE,
        on_page: Callable[[PageReading], None] = lambda page: None,
    ) -> None:
        """`module` is what the process runs; `folder` is for what it downloads."""
        self._about = {"settings": dict(settings), "batch": batch, "folder": str(folder)}
        self._limits, self._module, self._on_page = limits, module, on_page
        self._turns = Turns()
        self._changed = threading.Condition()
        self._process: _Process | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to load the model."""
        with self._changed:
            self._living()

    def read(self, pages: Sequence[PageRef], alone: bool = False) -> PieceRead:
        """Read pages to their ends, or until a death that they may be to blame for.

        Raises ReaderError where no page can be read, Cancelled after `stop`.
        """
        with self._turns.take(alone):
            read: list[PageReading] = []
            left = list(pages)
            while True:
                waiting = self._submit(left)
                with self._changed:
                    self._changed.wait_for(lambda one=waiting: one.over or self._stopped)  # type: ignore[misc]
                    if self._stopped and not waiting.over:
                        raise Cancelled
                    read += waiting.read
                    left = list(waiting.pages.values())
                    started = [waiting.pages[each].number for each in waiting.began if each in waiting.pages]
                if not left:
                    return PieceRead(tuple(read))
                if started:
                    unread = tuple(page.number for page in left)
                    return PieceRead(tuple(read), unread, tuple(sorted(started)), waiting.death or "")
                # None of its pages had been begun: whatever it was, they had no part in it.

    def stop(self) -> None:
        """End the process, and have it gone; what is being read raises Cancelled."""
        with self._changed:
            self._stopped = True
            process, self._process = self._process, None
            if process is not None:
                process.end("stopped")
            self._changed.notify_all()
            if process is not None:
                # Its memory is free then, and its CPU time is counted with this process's.
                self._changed.wait_for(lambda: process.dead is not None, _STOP_S)

    # --- the process ----------------------------------------------------------------------------

    def _submit(self, pages: Sequence[PageRef]) -> _Waiting:
        with self._changed:
            if self._stopped:
                raise Cancelled
            for _ in range(MOST_STARTS):  # one that is killed while it loads is no page's fault
                process = self._living()
                self._changed.wait_for(lambda one=process: one.ready or one.dead or self._stopped)  # type: ignore[misc]
                if process.fatal is not None:
                    raise ReaderError(process.fatal)
                if process.ready or not process.killed:
                    break
            waiting = _Waiting({process.new_id(): page for page in pages})
            if process.dead is not None:
                waiting.death = process.dead
                if not process.ready:
                    raise ReaderError(f"the reader process ended while it loaded: {process.dead}")
                return waiting
            process.waiting.append(waiting)
            lines = [_line(number, page) for number, page in waiting.pages.items()]
        process.send(b"".join(lines))
        return waiting

    def _living(self) -> _Process:
        """Under the lock."""
        if self._process is None or self._process.dead is not None:
            self._process = _Process(self._module, self._about, self._limits, self._changed, self._on_page)
        return self._process


def _line(number: int, page: PageRef) -> bytes:
    message = {"id": number, "path": page.path, "page": page.page, "source": page.source}
    return json.dumps(message).encode() + b"\n"


def _page(page: PageRef, message: Mapping[str, Any]) -> PageReading:
    """Raises what a message raises that is none."""
    if "error" in message:
        return page.failed(str(message["error"]))
    return page.read(result_from_jsonable(message["result"]))


class _Process:
    """One life of the process. Its fields change under the reader's lock."""

    def __init__(
        self,
        module: str,
        about: Mapping[str, Any],
        limits: Limits,
        changed: threading.Condition,
        on_page: Callable[[PageReading], None],
    ) -> None:
        self._limits, self._changed, self._on_page = limits, changed, on_page
        self.waiting: list[_Waiting] = []
        self.ready = False
        self.fatal: str | None = None
        self.dead: str | None = None
        """Why it ended."""
        self._ended_for: str | None = None
        self._ids = 0
        self._heard = time.monotonic()
        environment = module_environment(child_environment())
        self._child = Child(module_command(module), environment, talks=True)
        threading.Thread(target=self._hear, daemon=True).start()
        threading.Thread(target=self._child.watch, args=(_WATCH_S, self._check), daemon=True).start()
        self.send(json.dumps(about).encode() + b"\n")

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    @property
    def killed(self) -> bool:
        """Tell whether somebody else ended it, as the system does when memory runs out."""
        return self._ended_for is None and (self._child.returncode or 0) < 0

    def send(self, lines: bytes) -> None:
        with contextlib.suppress(ChildGone):  # heard of elsewhere
            self._child.send(lines)

    def end(self, why: str) -> None:
        self._ended_for = self._ended_for or why
        self._child.kill()

    def _hear(self) -> None:
        try:
            while True:
                line = self._child.receive()
                assert line is not None
                message = parse_json(line)
                with self._changed:
                    self._heard = time.monotonic()
                    self._take(message)
                    self._changed.notify_all()
        except (InvalidFile, LookupError, TypeError, ValueError):
            if self._child.alive:  # else it was cut off by its death
                self.end("wrote what is no message")
        except ChildGone:
            pass
        self._child.close()
        with self._changed:
            self.dead = self._ended_for or self._how_it_ended()
            for waiting in self.waiting:
                if waiting.pages:
                    waiting.death = self.dead
            self.waiting.clear()
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self.ready = True
        elif "fatal" in message:
            self.fatal = str(message["fatal"])
        elif "began" in message:
            number = int(message["began"])
            for waiting in self.waiting:
                if number in waiting.pages:
                    waiting.began.add(number)
        else:
            number = int(message.pop("id"))
            for waiting in self.waiting:
                if (page := waiting.pages.pop(number, None)) is not None:
                    done = _page(page, message)
                    waiting.read.append(done)
                    self._on_page(done)
            self.waiting = [waiting for waiting in self.waiting if waiting.pages]

    def _how_it_ended(self) -> str:
        said = self._child.last_line(_TAIL) if (self._child.returncode or 0) > 0 else ""
        return self._child.how_it_ended() + (f": {said}" if said else "")

    def _check(self) -> None:
        """End it when it takes more than a page may."""
        with self._changed:
            busy = any(waiting.began & waiting.pages.keys() for waiting in self.waiting)
            silent_s = time.monotonic() - self._heard
            limit_s = self._limits.page_s if self.ready else LOAD_LIMIT_S
            if (busy or not self.ready) and silent_s > limit_s:
                what = "no page ended" if self.ready else "the model was not loaded"
                self.end(f"{what} within {limit_s:g} s")
            elif not busy:
                self._heard = time.monotonic() if self.ready else self._heard
        if (most := self._limits.memory_bytes) and self._child.memory_bytes > most:
            self.end(f"took more than {most / 2**30:.2g} GiB of memory")
