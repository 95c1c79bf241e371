"""Images and PDFs opened in processes with limits: a hostile file costs its own page, nothing else.

Pillow and PDFium are large programs in C that strangers' files are fed to. A page of two kilobytes may
compute for ever or ask for gigabytes. So each is opened by a process with bounded computing time and memory;
it is ended and replaced when it passes them. Pixels come back in shared memory, with the same bits: of usual
pages in memory that is used again, of larger ones in memory that becomes the image's own. One process stays
warm; more start when several pages are opened at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from PIL import Image

from dsocr_core.base.bounded_json import InvalidFile, parse_value
from dsocr_core.base.child import Child, module_command, module_environment
from dsocr_core.base.system import SharedMemory, first_bytes
from dsocr_core.page.decoding import MODE_BYTES, MODES, NOTICES, PIXEL_BYTES, Unreadable, gray_as_rgb, mapped
from dsocr_core.page.opener_answers import (
    COUNTED,
    OPENED,
    PAGE,
    REFUSED,
    RUNS,
    TURNED,
    UPRIGHT,
    next_message,
    send_message,
)
from dsocr_core.page.rendering import MOST_RUNS

MOST_PROCESSES = min(8, os.cpu_count() or 1)
CPU_SECONDS = 7
"""Computing that one page may take; a page of 100 megapixels takes one to four."""
WALL_SECONDS = 60.0
"""For a process that waits instead of computing, and for one on a machine with much else to do."""
BASE_MEMORY_BYTES = 200_000_000
BYTES_A_PIXEL = 8
"""Memory that a page may take: four bytes a pixel as decoded, four as RGB."""

USUAL_BYTES = 32 * 2**20
"""Bytes of a usual page, as pixels: 8 megapixels. New memory costs more time than a copy."""

_ANSWER_BYTES = 16 * 1024
_RUNS_BYTES = 4 * 2**20
_ENVIRONMENT = {
    "PYTHONUTF8": "1",
    # With an arena a thread, address space would say little about memory.
    "MALLOC_ARENA_MAX": "1",
    # Of 16 MB each, which Pillow then uses again: new memory costs as much time as decoding into it.
    "PILLOW_BLOCKS_MAX": "4",
}


class Opened(NamedTuple):
    """A page in RGB, what to say of it, and whether it was turned as its EXIF says."""

    image: Image.Image
    notice: str | None
    turned: bool


def open_image(path: Path, max_pixels: int, exif: bool = True, frame: int = 1) -> Opened:
    """The page, upright unless `exif` is off; see `decoding.decode`.

    `frame` is a page of a TIFF or an animation, from 1. Raises Unreadable.
    """
    return _image({"work": "image", "path": path, "max_pixels": max_pixels, "exif": exif, "frame": frame})


def render_page(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """A page of a PDF in RGB; see `rendering.render`. Raises Unreadable."""
    request = {"work": "page", "path": path, "number": number, "dpi": dpi, "max_pixels": max_pixels}
    return _image(request).image


def page_text(path: Path, number: int) -> PageText:
    """The text layer of a page of a PDF; see `rendering.text_layer`. Raises Unreadable."""
    with _openers.one() as opener:
        answer, runs = opener.ask({"work": "text", "path": path, "number": number, "max_pixels": 0})
    if runs is None:
        raise Unreadable(_NO_SENSE)
    try:
        content = os.pread(runs, _RUNS_BYTES, 0)
    finally:
        os.close(runs)
    # A file may have taken the process over: nothing is trusted.
    try:
        found = parse_value(content)
        if answer != RUNS or not isinstance(found, list):
            raise ValueError
        width, height, runs = found
        return PageText(float(width), float(height), [_run(*run) for run in runs[:MOST_RUNS]])
    except (InvalidFile, ValueError, TypeError, IndexError, KeyError, OverflowError):
        raise Unreadable(_NO_SENSE) from None


def count_pages(path: Path) -> int:
    """Pages of a PDF, frames of an image. Raises Unreadable."""
    with _openers.one() as opener:
        answer, pixels = opener.ask({"work": "count", "path": path, "max_pixels": 0})
    if pixels is not None:
        os.close(pixels)
    if re.fullmatch(COUNTED + rb"[1-9]\d{0,8}", answer) is None:
        raise Unreadable(_NO_SENSE)
    return int(answer.removeprefix(COUNTED))


def _image(request: dict[str, Any]) -> Opened:
    with _openers.one() as opener:
        answer, pixels = opener.ask(request)
        if pixels is None:
            return Opened(opener.usual_page(answer), *_page(answer).said)
    try:
        return Opened(_shared_image(answer, pixels, request["max_pixels"]), *_page(answer).said)
    finally:
        os.close(pixels)


def _shared_image(answer: bytes, descriptor: int, max_pixels: int) -> Image.Image:
    """The image whose RGB bytes the process wrote. A file may have taken it over: nothing is trusted."""
    page = _page(answer)
    width, height = page.width, page.height
    there = width * height * PIXEL_BYTES
    # A rendered page is rounded up to whole pixels on both sides.
    if width * height > max_pixels + width + height or os.fstat(descriptor).st_size != there:
        raise Unreadable(_NO_SENSE)
    try:
        pixels = first_bytes(descriptor, there)
    except (OSError, ValueError):  # it was shrunk after the check, or cannot be sealed
        raise Unreadable(_NO_SENSE) from None
    # Without a copy; it is copied when somebody draws on it.
    image = _RGB._new(mapped(pixels, "RGB", (width, height)))
    image.readonly = 1
    return image


class TextRun(NamedTuple):
    """Text on one line of a page, in points from its lower left corner."""

    left: float
    bottom: float
    right: float
    top: float
    text: str


class PageText(NamedTuple):
    """A page's text layer: its size in points and its runs in the file's order."""

    width: float
    height: float
    runs: list[TextRun]


def _run(left: float, bottom: float, right: float, top: float, text: str) -> TextRun:
    return TextRun(float(left), float(bottom), float(right), float(top), str(text))


class _Page(NamedTuple):
    """A page as it is said to be."""

    width: int
    height: int
    mode: str
    turn: int | None
    """Left to do."""
    said: tuple[str | None, bool]
    """Notice, and whether it is to be turned or was."""


def _page(answer: bytes) -> _Page:
    """Raises Unreadable."""
    try:
        kind, width, height, mode, turn, notice = PAGE.unpack(answer)
    except struct.error:
        raise Unreadable(_NO_SENSE) from None
    known = mode < len(MODES) and turn in _TURNS and notice < len(NOTICES)
    if kind != OPENED or not width or not height or not known:
        raise Unreadable(_NO_SENSE)
    left = None if turn in (UPRIGHT, TURNED) else turn
    return _Page(width, height, MODES[mode], left, (NOTICES[notice], turn != UPRIGHT))


_TURNS = frozenset([UPRIGHT, TURNED, *Image.Transpose])
_NO_SENSE = "the opening process made no sense; save the file anew"
_RGB = Image.new("RGB", (0, 0))
"""Mode that Pillow's own images of pages come to."""


def _whole(path: Path) -> str:
    """From this process's folder: the other may have started in another. `..` stays, as the system has it."""
    text = os.fspath(path)
    if "\0" in text:
        raise Unreadable("cannot be read (a zero byte in its name); rename it")
    return text if text.startswith("/") else f"{Path.cwd()}/{text}"


# --- processes ----------------------------------------------------------------------------------


class _Opener:
    """One process. One request at a time."""

    def __init__(self) -> None:
        self.ended = False
        self._channel, theirs = socket.socketpair()
        self._usual = SharedMemory(USUAL_BYTES)
        with theirs:
            descriptors = theirs.fileno(), self._usual.descriptor
            self.child = Child(
                module_command("dsocr_core.page.opener_process", *map(str, descriptors)),
                {**module_environment(), **_ENVIRONMENT}, quiet=True, pass_fds=descriptors,
            )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> tuple[bytes, int | None]:
        """The answer, and a descriptor of pixels that came with it, for the caller to close.

        Raises Unreadable, for a refusal as for a limit that was passed.
        """
        memory = BASE_MEMORY_BYTES + BYTES_A_PIXEL * max(request["max_pixels"], 0)
        message = request | {
            "memory_bytes": memory,
            "cpu_seconds": CPU_SECONDS,
            "path": _whole(request["path"]),
        }
        try:
            self._channel.settimeout(WALL_SECONDS)
            send_message(self._channel, json.dumps(message).encode())
            answer, descriptors = next_message(self._channel, _ANSWER_BYTES, WALL_SECONDS)
        except OSError:  # a timeout included
            raise Unreadable(self._end()) from None
        except BaseException:
            self._end()
            raise
        refused = not answer or answer.startswith(REFUSED)
        for descriptor in descriptors if refused else descriptors[1:]:
            os.close(descriptor)
        if not answer:
            raise Unreadable(self._end())
        if refused:
            text = answer.removeprefix(REFUSED).decode("utf-8", "replace")
            raise Unreadable(" ".join(text.split()))
        return answer, descriptors[0] if descriptors else None

    def usual_page(self, answer: bytes) -> Image.Image:
        """The page in the memory of usual pages, in RGB and turned: the one copy of it. Raises Unreadable."""
        width, height, mode, turn, _ = _page(answer)
        if width * height * PIXEL_BYTES > USUAL_BYTES:
            raise Unreadable(_NO_SENSE)
        memory = self._usual.first(width * height * MODE_BYTES[mode])
        pixels = mapped(memory, mode, (width, height))
        if turn is not None:
            pixels = pixels.transpose(turn)
        if mode == "L":
            pixels = gray_as_rgb(pixels)
        elif mode != "RGB":
            pixels = pixels.convert("RGB", Image.Dither.NONE)
        elif turn is None:
            pixels = pixels.copy()
        return _RGB._new(pixels)

    def _end(self) -> str:
        """Kill the process; why it was, in words for people."""
        self._channel.close()
        self.ended = True
        in_time = self.child.wait(0.2)
        self.child.close()
        if not in_time:
            return f"not open within {WALL_SECONDS:g} s; save it anew or split it"
        if self.child.returncode == -signal.SIGXCPU:
            return f"takes more than {CPU_SECONDS} s of computing to open; save it anew, simpler or smaller"
        return "took the memory that a page may have, or brought the opening process down; save it anew"

    def forget(self) -> None:
        """After a fork: the process is the parent's."""
        self._channel.close()


class _Openers:
    """The processes that wait for a page, and turns to have one."""

    def __init__(self) -> None:
        # A semaphore in C: that of threading is Python, which counts beside a small page.
        self._turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(MOST_PROCESSES):
            self._turns.put(None)
        self._idle: list[_Opener] = []

    @contextmanager
    def one(self) -> Iterator[_Opener]:
        """A process for one page: the one used last, so that few stay warm."""
        self._turns.get()
        try:
            opener = self._warm() or _Opener()
            try:
                yield opener
            finally:
                if not opener.ended:
                    self._idle.append(opener)
        finally:
            self._turns.put(None)

    def _warm(self) -> _Opener | None:
        with contextlib.suppress(IndexError):
            while True:
                opener = self._idle.pop()
                if opener.child.alive:
                    return opener
        return None

    def forget(self) -> None:
        """After a fork: start anew."""
        for opener in self._idle:
            opener.forget()
        self.__init__()  # type: ignore[misc]


_openers = _Openers()
os.register_at_fork(after_in_child=_openers.forget)
