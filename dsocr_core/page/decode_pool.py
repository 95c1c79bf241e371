"""Processes with CPU, memory and time limits that open untrusted images and PDFs.

A page of two kilobytes may compute for ever or ask for gigabytes. Then its process is ended and replaced, and
only that page fails. Pixels come back in shared memory. One process stays warm.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import Child, ChildGone, module_environment
from dsocr_core.base.system import SharedMemory
from dsocr_core.page.decoding import MOST_SIDE, PIXEL_BYTES, DecodedPage, Unreadable, image_of_memory

MOST_PROCESSES = min(8, os.cpu_count() or 1)
CPU_SECONDS = 7
"""CPU time that opening one page may take. A page of 100 megapixels takes one to four seconds."""
WALL_SECONDS = 60.0
"""Time limit for a process that waits instead of computing, or runs on a busy machine."""
BASE_MEMORY_BYTES, BYTES_A_PIXEL = 200_000_000, 8
"""Memory limit of a page: a base, and for each pixel four bytes as decoded and four as RGB."""
WARM_BYTES = 64 * 2**20
"""Shared memory that a waiting process keeps, as new memory is slow: that of a page of 16 megapixels."""
_ENVIRONMENT = {
    "PYTHONUTF8": "1",
    "MALLOC_ARENA_MAX": "1",  # with more arenas, address space would say little about memory
    "PILLOW_BLOCKS_MAX": "4",  # blocks of 16 MB that are reused: new memory is as slow as decoding
}
_NO_SENSE = "the opening process made no sense; save the file again"
_RGB = Image.new("RGB", (0, 0))


def start_one(max_pixels: int) -> None:
    """Start a process before the first page is there: it takes a third of a second to be ready."""
    _workers.idle.append(_Worker(max_pixels))


def open_image(path: Path, max_pixels: int, exif: bool = True, frame: int = 1) -> DecodedPage:
    """Open an image as `decoding.decode` does. Raises Unreadable."""
    return _decoded({"work": "image", "number": frame, "exif": exif}, path, max_pixels)


def render_page(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """Render a page of a PDF in RGB as `rendering.render` does. Raises Unreadable."""
    return _decoded({"work": "page", "number": number, "dpi": dpi}, path, max_pixels).image


def count_pages(path: Path) -> int:
    """Count the pages of a PDF or TIFF. Raises Unreadable."""
    with _workers.one(0) as worker:
        count = worker.ask({"work": "count", "number": 0}, path, 0).get("count")
    if type(count) is not int or not 0 < count < 10**9:
        raise Unreadable(_NO_SENSE)
    return count


def _decoded(request: dict[str, Any], path: Path, max_pixels: int) -> DecodedPage:
    with _workers.one(max_pixels) as worker:
        return worker.page(worker.ask(request, path, max_pixels), max_pixels)


def _memory_for(max_pixels: int) -> int:
    """Bytes for the pixels of a page. A rendered page may be a pixel larger on both sides."""
    return max((max_pixels + 2 * MOST_SIDE) * PIXEL_BYTES, WARM_BYTES)


class _Worker:
    """One process and the shared memory of its pixels. It takes one request at a time."""

    def __init__(self, max_pixels: int) -> None:
        self.memory = SharedMemory(_memory_for(max_pixels))
        descriptor = self.memory.descriptor
        code = f"from dsocr_core.page.decoding import serve; serve({descriptor})"
        environment = {**module_environment(), **_ENVIRONMENT}
        self.child = Child([sys.executable, "-c", code], environment, talks=True, pass_fds=(descriptor,))

    def serves(self, max_pixels: int) -> bool:
        """Tell whether the process lives and its memory is enough for a page of that size."""
        return self.child.alive and _memory_for(max_pixels) <= self.memory.size

    def ask(self, request: dict[str, Any], path: Path, max_pixels: int) -> dict[str, Any]:
        """Send a request and return the answer. Raises Unreadable for a refusal or an exceeded limit."""
        text = os.fspath(path)
        if "\0" in text:
            raise Unreadable("cannot be read (a zero byte in its name); rename it")
        message = request | {
            # Relative to this process's folder. `..` is left to the system.
            "path": text if text.startswith("/") else f"{Path.cwd()}/{text}",
            "max_pixels": max_pixels, "cpu_seconds": CPU_SECONDS,
            "memory_bytes": BASE_MEMORY_BYTES + BYTES_A_PIXEL * max(max_pixels, 0),
        }  # fmt: skip
        answer: dict[str, Any] | None = None
        try:
            self.child.send(json.dumps(message).encode() + b"\n")
            if (line := self.child.receive(WALL_SECONDS)) is None:
                raise Unreadable(f"not open within {WALL_SECONDS:g} s; save it again or split it")
            answer = parse_json(line)  # not trusted: a file may have taken over the process
        except ChildGone:
            self.child.wait(1.0)
            limit = "took the memory that a page may have, or brought the opening process down; save it again"
            if self.child.returncode == -signal.SIGXCPU:
                limit = f"takes more than {CPU_SECONDS} s of computing to open; save it simpler or smaller"
            raise Unreadable(limit) from None
        except InvalidFile:
            raise Unreadable(_NO_SENSE) from None
        finally:
            if answer is None:
                self.child.close()
        if "refused" in answer:
            raise Unreadable(" ".join(str(answer["refused"]).split()))
        return answer

    def page(self, answer: dict[str, Any], max_pixels: int) -> DecodedPage:
        """Copy the page out of the shared memory. Raises Unreadable for an answer without sense."""
        try:
            width, height, animated = answer["page"]
            if [*map(type, answer["page"])] != [int, int, bool] or min(width, height) < 1:
                raise ValueError
            count = width * height
            if count > max_pixels + width + height or count * PIXEL_BYTES > self.memory.size:
                raise ValueError
            memory = self._copied(count * PIXEL_BYTES)
            if len(memory) < count * PIXEL_BYTES:
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError):
            raise Unreadable(_NO_SENSE) from None
        return DecodedPage(_RGB._new(image_of_memory(memory, (width, height))), animated)

    def _copied(self, count: int) -> Any:
        """The first bytes of its memory, copied while other threads run; `pread` takes twice as long."""
        if (mapped := self.memory.mapped) is None:
            return os.pread(self.memory.descriptor, count, 0)
        np.copyto(copy := np.empty(count, np.uint8), np.frombuffer(mapped, np.uint8, count))
        return copy


class _Workers:
    """Pool of the processes that wait for a page."""

    def __init__(self) -> None:
        self._turns = threading.Semaphore(MOST_PROCESSES)
        self.idle: list[_Worker] = []

    @contextmanager
    def one(self, max_pixels: int) -> Iterator[_Worker]:
        """Take a process for one page. The one used last is taken first, so that few stay warm."""
        with self._turns:
            worker = self._warm(max_pixels) or _Worker(max_pixels)
            try:
                yield worker
            finally:
                if worker.child.alive:
                    worker.memory.give_back(WARM_BYTES)
                    self.idle.append(worker)

    def _warm(self, max_pixels: int) -> _Worker | None:
        with suppress(IndexError):  # another thread may take the last one
            while not (worker := self.idle.pop()).serves(max_pixels):
                worker.child.close()
            return worker
        return None


_workers = _Workers()
os.register_at_fork(after_in_child=lambda: _workers.__init__())  # type: ignore[misc]  # they are the parent's
