"""Images and PDFs opened in processes with limits: a hostile file costs its own page, nothing else.

Pillow and PDFium are large programs in C that strangers' files are fed to. A page of two kilobytes may
compute for ever or ask for gigabytes. So each is opened by a process with bounded computing time and memory;
it is ended and replaced when it passes them. Pixels come back in shared memory, with the same bits: of usual
pages in memory that is used again, of larger ones in memory that becomes the image's own. One process stays
warm; more start when several pages are opened at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.inputs.decoding import MODE_BYTES, PIXEL_BYTES, Unreadable, mapped
from dsocr_core.outside.untrusted import Refused, parse_json
from dsocr_core.settings import PROJECT_ROOT

MOST_PROCESSES = min(8, os.cpu_count() or 1)
CPU_SECONDS = 7
"""Computing that one page may take; a page of 100 megapixels takes one to four."""
WALL_SECONDS = 60.0
"""For a process that waits instead of computing, and for one on a machine with much else to do."""
BASE_MEMORY_BYTES = 200_000_000
BYTES_A_PIXEL = 8
"""Memory that a page may take: four bytes a pixel as decoded, four as RGB."""

USUAL_BYTES = 32 * 2**20
"""Of a usual page, as pixels: 8 megapixels. New memory costs more time than a copy."""

_ANSWER_BYTES = 64 * 1024
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""What was shrunk after a check would end the process that reads it."""
_AT_ONCE = mmap.MAP_SHARED | mmap.MAP_POPULATE
"""One call to the system instead of a fault every few pages of memory."""
_ENVIRONMENT = {
    "PYTHONUTF8": "1",
    # With an arena a thread, address space would say little about memory.
    "MALLOC_ARENA_MAX": "1",
    # Of 16 MB each, which Pillow then uses again: new memory costs as much time as decoding into it.
    "PILLOW_BLOCKS_MAX": "4",
}


def open_image(path: Path, max_pixels: int, exif: bool = True) -> Image.Image:
    """The page in RGB, upright unless `exif` is off; see `decoding.decode`. Raises Unreadable."""
    return _image({"work": "image", "path": path, "max_pixels": max_pixels, "exif": exif})


def render_page(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """A page of a PDF in RGB; see `rendering.render`. Raises Unreadable."""
    return _image({"work": "page", "path": path, "number": number, "dpi": dpi, "max_pixels": max_pixels})


def count_pages(path: Path) -> int:
    """Pages of a PDF. Raises Unreadable."""
    with _pixels() as nothing, _openers.one() as opener:
        count = opener.ask({"work": "count", "path": path, "max_pixels": 0}, nothing).get("count")
    if not isinstance(count, int) or count < 1:
        raise Unreadable(_NO_SENSE)
    return count


def _image(request: dict[str, Any]) -> Image.Image:
    with _pixels() as pixels:
        with _openers.one() as opener:
            answer = opener.ask(request, pixels)
            if os.fstat(pixels).st_size == 0:
                return opener.usual_page(answer)
        return _shared_image(answer.get("size"), pixels, request["max_pixels"])


@contextmanager
def _pixels() -> Iterator[int]:
    descriptor = os.memfd_create("dsocr-pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shared_image(size: Any, descriptor: int, max_pixels: int) -> Image.Image:
    """The image whose RGB bytes the process wrote. A file may have taken it over: nothing is trusted."""
    try:
        # Sealed first: what was shrunk or written after the check would end this process, or change under it.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SIZE_SEALS | fcntl.F_SEAL_WRITE)
    except OSError:
        size = None
    match size:
        case [int(width), int(height)] if min(width, height) > 0:
            there = width * height * PIXEL_BYTES
            # A rendered page is rounded up to whole pixels on both sides.
            if width * height <= max_pixels + width + height and os.fstat(descriptor).st_size == there:
                memory = mmap.mmap(descriptor, there, _AT_ONCE, mmap.PROT_READ)
                # Without a copy; it is copied when somebody draws on it.
                image = _image_of(mapped(memory, "RGB", (width, height)))
                image.readonly = 1
                return image
    raise Unreadable(_NO_SENSE)


_TURNS = frozenset([None, *Image.Transpose])
_NO_SENSE = "the opening process made no sense; save the file anew"


def _image_of(pixels: Any) -> Image.Image:
    """The image of Pillow's own in RGB."""
    return Image.new("RGB", (0, 0))._new(pixels)


# --- processes ----------------------------------------------------------------------------------


class _Opener:
    """One process. One request at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        path = os.pathsep.join(filter(None, (str(PROJECT_ROOT), os.environ.get("PYTHONPATH"))))
        with theirs, _pixels() as usual:
            os.ftruncate(usual, USUAL_BYTES)  # takes no memory before it is written
            fcntl.fcntl(usual, fcntl.F_ADD_SEALS, _SIZE_SEALS)
            self._usual = mmap.mmap(usual, USUAL_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dsocr_core.inputs.opener_process", str(theirs.fileno()), str(usual)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), usual), start_new_session=True,
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": path},
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: dict[str, Any], pixels: int) -> dict[str, Any]:
        """What the process answers. Raises Unreadable, for a refusal as for a limit that was passed."""
        memory = BASE_MEMORY_BYTES + BYTES_A_PIXEL * max(request["max_pixels"], 0)
        # Sent whole, from this process's folder: the other may have started in another.
        limits = {"memory_bytes": memory, "cpu_seconds": CPU_SECONDS}
        message = request | limits | {"path": os.path.abspath(request["path"])}  # noqa: PTH100 - links stay
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], [pixels])
            answer = self._receive()
        except OSError:  # a timeout included
            raise Unreadable(self._end()) from None
        except BaseException:
            self._end()
            raise
        if "unreadable" in answer:
            raise Unreadable(" ".join(str(answer["unreadable"]).split()))
        return answer

    def usual_page(self, answer: dict[str, Any]) -> Image.Image:
        """The page in the memory of usual pages, in RGB and turned: the one copy of it. Raises Unreadable."""
        match answer:
            case {"size": [int(width), int(height)], "mode": str(mode), "turn": int() | None as turn} if (
                min(width, height) > 0 and mode in MODE_BYTES and turn in _TURNS
            ):
                if width * height * PIXEL_BYTES <= USUAL_BYTES:
                    pixels = mapped(self._usual, mode, (width, height))
                    if turn is not None:
                        pixels = pixels.transpose(turn)
                    if mode != "RGB":
                        pixels = pixels.convert("RGB", Image.Dither.NONE)
                    return _image_of(pixels.copy() if (mode, turn) == ("RGB", None) else pixels)
        raise Unreadable(_NO_SENSE)

    def _receive(self) -> dict[str, Any]:
        """One JSON object. Raises OSError when none comes."""
        self._channel.settimeout(WALL_SECONDS)
        try:
            return parse_json(self._channel.recv(_ANSWER_BYTES))
        except Refused:
            raise ConnectionError from None

    def _end(self) -> str:
        """Kill the process; why it was, in words for people."""
        self._channel.close()
        if not self._waited(0.2):
            self._process.kill()
            self._process.wait()
            return f"not open within {WALL_SECONDS:g} s; save it anew or split it"
        if self._process.returncode == -signal.SIGXCPU:
            return f"takes more than {CPU_SECONDS} s of computing to open; save it anew, simpler or smaller"
        return "took the memory that a page may have, or brought the opening process down; save it anew"

    def _waited(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def forget(self) -> None:
        """After a fork: the process is the parent's."""
        self._channel.close()


class _Openers:
    """The processes that wait for a page, and turns to have one."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(MOST_PROCESSES)
        self._idle: list[_Opener] = []

    @contextmanager
    def one(self) -> Iterator[_Opener]:
        """A process for one page: the one used last, so that few stay warm."""
        with self._turns:
            opener = self._warm() or _Opener()
            try:
                yield opener
            finally:
                if opener.alive:
                    self._idle.append(opener)

    def _warm(self) -> _Opener | None:
        with contextlib.suppress(IndexError):
            while True:
                opener = self._idle.pop()
                if opener.alive:
                    return opener
        return None

    def forget(self) -> None:
        """After a fork: start anew."""
        for opener in self._idle:
            opener.forget()
        self.__init__()  # type: ignore[misc]


_openers = _Openers()
os.register_at_fork(after_in_child=_openers.forget)
