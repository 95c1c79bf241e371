"""A worker's side of its reader process: started, fed, watched, replaced when it dies.

Two shards are read at the same time, so that the engine's batch never drains. When the process dies, the
pages that it had begun are read one by one, while nothing else is read: the page that ends it again is to
blame.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 - its defaults are in Dask's configuration then

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import Child, ChildGone, module_command, module_environment
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.pages import PageRef
from dsocr_core.reading.records import result_from_jsonable
from dsocr_core.runs.sharded import PageReading

MODULE = "dsocr_core.cluster.reader_process"
LOAD_LIMIT_S = 900.0
MOST_STARTS = 3
"""Starts of a process, or of a worker, that dies before it has begun a page."""
_TRIM = "MALLOC_TRIM_THRESHOLD_"
_WATCH_S = 0.2
_STOP_S = 5.0
_TAIL = 200
"""Characters of what a process said last."""


class ReaderError(DsocrError):
    """No page can be read here: names the cause."""


@dataclass(frozen=True)
class Limits:
    """Limits of a page before its process is ended."""

    page_s: float = 300.0
    """Seconds in which no page of those that were begun ends."""
    memory_bytes: int = 0
    """Memory of the process; 0 is no limit."""


def child_environment() -> dict[str, str]:
    """This process's, without the allocator's threshold where it is Dask's.

    Dask has the allocator of its workers give every free page back at once. An engine takes the same memory
    for each page it reads: with that setting a page cost a third more time (docs/performance.md).
    """
    by_dask = dask.config.get(f"distributed.nanny.pre-spawn-environ.{_TRIM}", None)
    is_dasks = os.environ.get(_TRIM) == str(by_dask)
    return {name: value for name, value in os.environ.items() if name != _TRIM or not is_dasks}


@dataclass
class _Sent:
    """Pages that were sent to the process together."""

    left: dict[int, PageRef]
    """Those without a result, by the number that the process knows them by."""
    read: list[PageReading] = field(default_factory=list)
    began: set[int] = field(default_factory=set)
    death: str | None = None
    """Words for the end of the process before all were read."""

    @property
    def begun(self) -> list[PageRef]:
        """Pages that the process had begun and not ended."""
        return [page for number, page in self.left.items() if number in self.began]


class Reader:
    """The reader process of one worker, and what is in it. Thread-safe."""

    def __init__(
        self, settings: Mapping[str, Any], batch: int | None, limits: Limits, folder: Path,
        module: str = MODULE,
    ) -> None:  # fmt: skip
        """`module` is what the process runs; `folder` is for what it downloads."""
        about = {"settings": dict(settings), "batch": batch, "folder": str(folder)}
        self._first_line, self._module, self._limits = json.dumps(about).encode() + b"\n", module, limits
        self._changed = threading.Condition()
        self._process: _Process | None = None
        self._stopped = False
        self._together, self._alone, self._waiting_alone = 0, False, 0
        self._ids = 0

    def start(self) -> None:
        """Begin to load the model."""
        with self._changed:
            self._living()

    def read(self, pages: Sequence[PageRef]) -> list[PageReading]:
        """Every page, in any order: its result, its error, or that it is quarantined.

        Raises ReaderError where no page can be read, Cancelled after `stop`.
        """
        done: list[PageReading] = []
        left, deaths = list(pages), 0
        while left:
            with self._turn(alone=False):
                sent = self._sent(left)
            begun = sent.begun
            done += sent.read + [self._read_alone(page) for page in begun]
            left = [page for page in sent.left.values() if page not in begun]
            deaths = 0 if begun else deaths + 1
            if left and deaths == MOST_STARTS:
                raise _never_began(sent)
        return done

    def _read_alone(self, page: PageRef) -> PageReading:
        for _ in range(MOST_STARTS):
            with self._turn(alone=True):
                sent = self._sent([page])
            if not sent.left:
                return sent.read[0]
            if sent.begun:
                words = f"{sent.death}; it ended 2 processes, the last one while it was read alone"
                return page.failed(words, quarantined=True)
        raise _never_began(sent)

    @contextlib.contextmanager
    def _turn(self, alone: bool) -> Iterator[None]:
        """Shards are read together, a page alone: who is alone waits for the others, and they for it."""
        with self._changed:
            self._waiting_alone += alone
            self._changed.wait_for(
                lambda: not self._alone and not (self._together if alone else self._waiting_alone)
            )
            self._waiting_alone -= alone
            self._alone, self._together = alone, self._together + (not alone)
        try:
            yield
        finally:
            with self._changed:
                self._alone, self._together = False, self._together - (not alone)
                self._changed.notify_all()

    def stop(self) -> None:
        """End the process, and have it gone; what is being read raises Cancelled."""
        with self._changed:
            self._stopped = True
            process, self._process = self._process, None
            self._changed.notify_all()
            if process is not None:
                process.end("stopped")
                # Its memory is free then, and its CPU time is counted with this process's.
                self._changed.wait_for(lambda: process.dead is not None, _STOP_S)

    # --- the process ----------------------------------------------------------------------------

    def _sent(self, pages: Sequence[PageRef]) -> _Sent:
        """Pages after they were read, or after the process died on them."""
        with self._changed:
            process = self._ready()
            numbers = range(self._ids, self._ids + len(pages))
            self._ids += len(pages)
            sent = _Sent(dict(zip(numbers, pages, strict=True)), death=process.dead)
            process.sent.append(sent)
        process.send(
            json.dumps({"id": number, "path": page.path, "page": page.page, "source": page.source})
            for number, page in zip(numbers, pages, strict=True)
        )
        with self._changed:
            self._changed.wait_for(lambda: sent.death is not None or not sent.left or self._stopped)
            if self._stopped and sent.death is None and sent.left:
                raise Cancelled
        return sent

    def _ready(self) -> _Process:
        """A process that has loaded the model. Under the lock."""
        for _ in range(MOST_STARTS):  # one that is killed while it loads is no page's fault
            if self._stopped:
                raise Cancelled
            process = self._living()
            self._changed.wait_for(lambda one=process: one.ready or one.dead or self._stopped)  # type: ignore[misc]
            if process.fatal is not None:
                raise ReaderError(process.fatal)
            if process.ready:
                return process
            if not process.killed:
                break
        if self._stopped:
            raise Cancelled
        raise ReaderError(f"the reader process ended while it loaded: {process.dead}")

    def _living(self) -> _Process:
        """Under the lock."""
        if self._process is None or self._process.dead is not None:
            self._process = _Process(self._module, self._first_line, self._limits, self._changed)
        return self._process


def _never_began(sent: _Sent) -> ReaderError:
    words = f"the reader process ended {MOST_STARTS} times before it began a page"
    return ReaderError(f"{words}: {sent.death}")


class _Process:
    """One life of the process. Its fields change under the reader's lock."""

    def __init__(self, module: str, line: bytes, limits: Limits, changed: threading.Condition) -> None:
        self._limits, self._changed = limits, changed
        self.sent: list[_Sent] = []
        self.ready = False
        self.fatal: str | None = None
        self.dead: str | None = None
        """Why it ended."""
        self._ended_for: str | None = None
        self._heard = time.monotonic()
        self._child = Child(module_command(module), module_environment(child_environment()), talks=True)
        threading.Thread(target=self._hear, daemon=True).start()
        threading.Thread(target=self._child.watch, args=(_WATCH_S, self._check), daemon=True).start()
        with contextlib.suppress(ChildGone):
            self._child.send(line)

    @property
    def killed(self) -> bool:
        """Tell whether somebody else ended it, as the system does when memory runs out."""
        return self._ended_for is None and (self._child.returncode or 0) < 0

    def send(self, lines: Iterator[str]) -> None:
        with contextlib.suppress(ChildGone):  # heard of elsewhere
            self._child.send("".join(f"{line}\n" for line in lines).encode())

    def end(self, why: str) -> None:
        self._ended_for = self._ended_for or why
        self._child.kill()

    def _hear(self) -> None:
        try:
            while (line := self._child.receive()) is not None:
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
        said = self._child.last_line(_TAIL) if (self._child.returncode or 0) > 0 else ""
        with self._changed:
            self.dead = self._ended_for or ": ".join(filter(None, (self._child.how_it_ended(), said)))
            for sent in self.sent:
                sent.death = self.dead
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        """Raises what a message raises that is none."""
        if "ready" in message or "fatal" in message:
            self.ready, self.fatal = "ready" in message, message.get("fatal")
            return
        number = int(message["began"] if "began" in message else message["id"])
        for sent in self.sent:
            if (page := sent.left.get(number)) is not None and "began" in message:
                sent.began.add(number)
            elif page is not None:
                if "error" in message:
                    sent.read.append(page.failed(str(message["error"])))
                else:
                    sent.read.append(page.read(result_from_jsonable(message["result"])))
                del sent.left[number]
        self.sent = [sent for sent in self.sent if sent.left]

    def _check(self) -> None:
        """End it when it takes more than a page may."""
        with self._changed:
            busy = not self.ready or any(sent.begun for sent in self.sent)
            if not busy:
                self._heard = time.monotonic()
            limit_s = self._limits.page_s if self.ready else LOAD_LIMIT_S
            if time.monotonic() - self._heard > limit_s:
                what = "no page ended" if self.ready else "the model was not loaded"
                self.end(f"{what} within {limit_s:g} s")
        if (most := self._limits.memory_bytes) and self._child.memory_bytes > most:
            self.end(f"took more than {most / 2**30:.2g} GiB of memory")
