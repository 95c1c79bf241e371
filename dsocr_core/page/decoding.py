"""Untrusted images and PDFs opened by Pillow and PDFium, in a process of decode_pool.py (`serve`)."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import stat
import struct
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from PIL import ExifTags, Image, ImageOps, PngImagePlugin, UnidentifiedImageError

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.system import limit_to, memory_limit

# Formats that are decoded in this process. EPS is left out: it would run a program in Ghostscript.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "DIB", "GIF", "JPEG2000", "PPM", "AVIF")
_DIRECT = {("PNG", "RGB"), ("JPEG", "RGB")}
"""(format, mode) of images whose pixels are decoded straight into the shared memory."""
MOST_SIDE = 65_535
"""Most pixels of a side, as in a JPEG. Pillow's row addresses of 1 x 100,000,000 pixels take 3.4 GB."""
MOST_PAGES = 20_000
"""Most pages of one file: a small PDF may claim any number."""
PIXEL_BYTES = 4
"""Bytes of an RGB pixel in Pillow's memory."""
WORK_BYTES = {"WEBP": 20, "AVIF": 16, "JPEG2000": 32}
"""Bytes a pixel that a format's library needs to decode. Formats not listed need no more than the pixels."""
DECODE_ERRORS = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, ZeroDivisionError, RuntimeError, struct.error, zlib.error,
    Image.DecompressionBombError,
)  # fmt: skip
"""Errors that Pillow's readers raise on damaged files."""
_MOST_REASON = 1000


class Unreadable(DsocrError):
    """A file that cannot be opened as a page, with cause and way out. The caller names the file."""


class DecodedPage(NamedTuple):
    """A page in RGB. `animated`: it is the first picture of several."""

    image: Image.Image
    animated: bool = False


def cause(error: BaseException) -> str:
    """Shorten an error to a few words on one line, without the path, which the message names anyway."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:120] or type(error).__name__


def image_of_memory(memory: Any, size: tuple[int, int]) -> Any:
    """Make a Pillow RGB image whose pixels are this memory: bytes, a map or an array."""
    return Image.core.map_buffer(memory, size, "raw", 0, ("RGB", 0, 1))  # type: ignore[attr-defined]


def black(memory: mmap.mmap, size: tuple[int, int]) -> Any:
    """Make a black image over the memory, so that no pixel of the page before remains. Raises Unreadable."""
    used = size[0] * size[1] * PIXEL_BYTES
    if used > len(memory):
        raise Unreadable("comes out larger than its header says; save it again")
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, used)
    return image_of_memory(memory, size)


def frame_count(path: str) -> int:
    """Count the pages in an image. Raises Unreadable."""
    try:
        with _open(path) as image:
            return len(_frames_of(image))
    except (MemoryError, *DECODE_ERRORS) as error:
        raise Unreadable(f"damaged or truncated image ({cause(error)}); save it again") from error


def _frames_of(image: Image.Image) -> list[int]:
    """Frames that are pages: of a TIFF all but previews, of other formats the first. Raises Unreadable."""
    if image.format != "TIFF" or (count := getattr(image, "n_frames", 1)) == 1:
        return [0]
    if count > MOST_PAGES:
        raise Unreadable(f"{count:,} pages; at most {MOST_PAGES:,} are read; split it")
    pages = []
    for frame in range(count):
        image.seek(frame)
        if not image.tag_v2.get(254, 0) & 1:  # type: ignore[attr-defined]  # a smaller copy
            pages.append(frame)
    return pages or [0]


def decode(
    path: str, max_pixels: int, memory_bytes: int, memory: mmap.mmap, exif: bool = True, frame: int = 1
) -> DecodedPage:
    """Decode a page as the published code opens it: turned by EXIF unless `exif` is off, then RGB.

    `frame` is a page of a TIFF, from 1. The header's size is checked against the limits before anything is
    decoded. The pixels end in `memory`; a PNG or JPEG in RGB is decoded there. Raises Unreadable.
    """
    try:
        with _open(path) as image:
            if frame > 1:
                image.seek(_frames_of(image)[frame - 1])
            _check_work(image, max_pixels, memory_bytes)
            made = None
            if (image.format, image.mode) in _DIRECT:
                image.im = made = black(memory, image.size)
            image.load()
            upright = _upright(image) if exif else image
            rgb = upright if upright.mode == "RGB" else upright.convert("RGB")
            if rgb.im is not made:
                black(memory, rgb.size).paste(rgb.im, (0, 0, *rgb.size))
            animated = False
            with suppress(*DECODE_ERRORS):  # errors of the second picture, which is not read
                animated = image.format in ("GIF", "WEBP", "AVIF") and getattr(image, "is_animated", False)
            return DecodedPage(rgb, animated)
    except UnidentifiedImageError:
        raise Unreadable("not an image of a known format; give a PNG, JPEG or PDF") from None
    except MemoryError as error:
        more = "make the image smaller or raise max_megapixels"
        raise Unreadable(f"takes more than {memory_bytes / 1e9:.1f} GB to open; {more}") from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"damaged or truncated image ({cause(error)}); save it again") from error


def _open(path: str) -> Image.Image:
    """Open an image without decoding it."""
    Image.init()  # registers every reader
    return Image.open(path, formats=[name for name in _FORMATS if name in Image.OPEN])


def _check_work(image: Image.Image, max_pixels: int, memory_bytes: int) -> None:
    width, height = image.size
    needed = width * height * WORK_BYTES.get(image.format or "", 0)
    smaller = "make the image smaller or raise max_megapixels"
    if width * height > max_pixels:
        raise Unreadable(f"{width} x {height} pixels are more than the limit of {max_pixels:,}; {smaller}")
    if (side := max(width, height)) > MOST_SIDE:
        raise Unreadable(f"a side of {side:,} pixels; at most {MOST_SIDE:,} are read; cut the image")
    if needed > memory_bytes:
        takes = f"{width} x {height} pixels in {image.format} take {needed / 1e9:.1f} GB to open"
        raise Unreadable(f"{takes}, more than {memory_bytes / 1e9:.1f} GB; save it as PNG, {smaller}")


def _upright(image: Image.Image) -> Image.Image:
    """Turn the image as its EXIF says; return it unchanged where that is missing or broken, as published."""
    try:
        turn = image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
        return ImageOps.exif_transpose(image) if turn else image
    except DECODE_ERRORS:
        return image


# --- the process ----------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Answer requests, lines of JSON; pixels go to the memory of that descriptor. Ends with its caller."""
    memory = mmap.mmap(descriptor, 0)
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)  # what a library prints must not be taken for an answer
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Image.init()
        Image.MAX_IMAGE_PIXELS = None  # `_check_work` has a limit for each page
        PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY
        gc.freeze()  # imported objects stay: garbage collection skips them
        for line in sys.stdin.buffer:
            request = json.loads(line)
            limit_to(resource.RLIMIT_CPU, int(time.process_time()) + 1 + request["cpu_seconds"])
            try:
                with memory_limit(request["memory_bytes"]):
                    answer = _answer(request, memory)
            except Unreadable as error:
                answer = {"refused": str(error)[:_MOST_REASON]}
            except MemoryError:
                answer = {"refused": "takes more memory to open than a page may; make it smaller"}
            answers.write(json.dumps(answer).encode() + b"\n")


def _answer(request: dict[str, Any], memory: mmap.mmap) -> dict[str, Any]:
    """Answer one request. Raises Unreadable, MemoryError."""
    work, path, number, most = (request[name] for name in ("work", "path", "number", "max_pixels"))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - many times the time of the call
            raise Unreadable("is not a regular file; copy it to one")  # reading a pipe would block
    except OSError as error:
        raise Unreadable(f"cannot be read ({cause(error)})") from error
    if work == "image":
        page = decode(path, most, request["memory_bytes"], memory, request["exif"], number)
    elif work == "count" and not path.lower().endswith(".pdf"):
        return {"count": frame_count(path)}
    else:  # PDFium is loaded for PDFs alone
        from dsocr_core.page.rendering import page_count, render

        if work == "count":
            return {"count": page_count(Path(path))}
        page = DecodedPage(render(Path(path), number, request["dpi"], most))
        black(memory, page.image.size).paste(page.image.im, (0, 0, *page.image.size))
    return {"page": [*page.image.size, page.animated]}
