"""The process that reads pages for a worker: one warm engine, fed through its standard input.

One JSON object a line. In: `{"settings": ..., "batch": ..., "folder": ...}`, then pages as
`{"id": 7, "path": ..., "page": null, "source": ...}` while the worker has some. Out: `{"ready": ...}` once
the model is loaded, or `{"fatal": ...}`; `{"began": 7}` before a page is opened; `{"id": 7, "result": ...}`
with what was read of it, or `"error"`. It ends with its input.

The engine is not in the worker itself, as a page may end the process that reads it, and as Dask's messages,
the writing of results and the engine's own launches would wait for each other in one process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dsocr_core.base.errors import DsocrError, one_line, page_error, unforeseen
from dsocr_core.engine.source import Prefetch, Work
from dsocr_core.engine.threads import wait_politely
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.records import OcrRequest, OcrResult

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage

DEFAULT_SLOTS = 256  # pages read together where the job names no batch
"""Slots of the fast engine's batch where no number is given."""
Message = dict[str, Any]


@dataclass(frozen=True)
class _Page:
    """A page that is ready to be read. `prepared` is None where the backend preprocesses it itself."""

    id: int
    request: OcrRequest
    prepared: PreparedPage | None


@dataclass(frozen=True)
class _Arriving:
    """Source of pages for the batch, as they arrive. It has no end: the process ends with its worker."""

    pages: Prefetch[_Page | None]
    exhausted = False

    def take(self, timeout_s: float) -> Work | None:
        page = self.pages.next(timeout_s)
        return Work(page, page.request, page.prepared) if page and page.prepared else None


class ReaderProcess:
    """Reader of the pages that arrive. It writes a message about each."""

    def __init__(self, answers: BinaryIO, about: Message) -> None:
        from dsocr_core.backends.backend import Opening
        from dsocr_core.cluster.local_files import LocalFiles
        from dsocr_core.read.session import Session
        from dsocr_core.settings import settings_of

        self._answers, self._writing = answers, threading.Lock()
        self.settings = settings_of(about["settings"])
        self.slots = int(about["batch"] or DEFAULT_SLOTS)
        self.session = Session(self.settings, Opening(caches=False))
        self.files = LocalFiles(Path(about["folder"]), self.settings.pdf_dpi, self.settings.max_pixels)

    def load(self) -> None:
        """Load the model. Raises DsocrError where no page can be read."""
        self.session.check(("a",))
        self.session.load(("a",))
        self.send({"ready": self.settings.backend("a")})

    def read(self, pages: BinaryIO) -> None:
        """Read pages as they arrive, until the process ends. Raises errors that concern all pages."""
        arriving: Prefetch[_Page | None] = Prefetch(self.prepare)
        threading.Thread(target=feed, args=(pages, arriving.put), daemon=True).start()
        if (backend := self.session.side("a")).reads_many:
            backend.read_many(_Arriving(arriving), self._on_result, self.slots)
            return
        while True:
            if (page := arriving.next(1.0)) is not None:
                found = self.session.compare(page.request, ("a",), prepared=page.prepared)
                self._on_result(page, found.a or DsocrError(found.errors["a"]))

    def prepare(self, page: Message) -> _Page | None:
        """Open and preprocess a page. None for one that fails, after its error was sent."""
        from dsocr_core.reading.fingerprints import page_file

        self.send({"began": page["id"]})
        image = None
        try:
            image = self.files.image(page["path"], page["page"])
            request = self.settings.request(image, page["source"])
            if page["page"] is None:
                request = replace(request, file=page_file(image))
            return _Page(page["id"], request, self.session.prepared(request))
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            self.send({"id": page["id"], "error": str(page_error(error, page["source"]))})
        if image is not None:
            self.files.forget(image)
        return None

    def _on_result(self, page: object, outcome: OcrResult | DsocrError) -> None:
        assert isinstance(page, _Page)
        self.files.forget(page.request.image)
        if isinstance(outcome, DsocrError):
            self.send({"id": page.id, "error": str(outcome)})
        else:
            # Texts of single tokens would be most of a shard's bytes; text and ids say the same.
            self.send({"id": page.id, "result": to_jsonable(replace(outcome, token_texts=(), top_two=()))})

    def send(self, message: Message) -> None:
        with self._writing:
            self._answers.write(json.dumps(message).encode() + b"\n")
            self._answers.flush()


def feed(pages: BinaryIO, put: Callable[[Message], object]) -> None:
    """Pass pages on as they come, and end the process when the worker is gone."""
    for line in pages:
        put(json.loads(line))
    os._exit(0)


def main(make: Callable[[BinaryIO, Message], ReaderProcess] = ReaderProcess) -> int:
    """Serve one worker until it is gone. Returns 1 after a message about a fault that concerns all pages."""
    wait_politely()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for a message
    if not (line := sys.stdin.buffer.readline()):
        return 0
    try:
        process = make(answers, json.loads(line))
        process.load()
        process.read(sys.stdin.buffer)
        return 0
    except DsocrError as error:
        words = str(error)
    except Exception as error:  # noqa: BLE001 - the worker is told, whatever it is
        words = f"{unforeseen(error, 'reader process')}: {one_line(error, 200)}"
    answers.write(json.dumps({"fatal": words}).encode() + b"\n")
    answers.flush()
    return 1


if __name__ == "__main__":
    sys.stdout.flush()
    status = main()
    os._exit(status)  # threads that open pages are of no use any more
