"""Image files decoded by Pillow, and what that may cost. Runs in a worker: see decode_pool.py."""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import threading
import zlib
from typing import Any, NamedTuple

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from dsocr_core.base.errors import DsocrError

# Formats that decode in process; EPS for one would start Ghostscript on a stranger's program.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "DIB", "GIF", "JPEG2000", "PPM", "AVIF")

MOST_SIDE = 65_535
"""Pixels of a side, the most a JPEG may have. Pillow holds addresses for every row: an image of
1 x 100,000,000 pixels takes 3.4 GB."""

PIXEL_BYTES = 4
"""Bytes of an RGB pixel in Pillow's memory."""

WORK_BYTES = {"WEBP": 20, "AVIF": 16, "JPEG2000": 32}
"""Bytes a pixel that a format's library takes while it decodes; others take what the pixels are."""

DECODE_ERRORS = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, ZeroDivisionError, RuntimeError, struct.error, zlib.error,
    Image.DecompressionBombError,
)  # fmt: skip
"""Errors that Pillow's readers raise on damaged files: they trust more than they check."""

MOST_FRAMES = 20_000
"""Pages of one image."""
_SUBFILE = 254
_WHITE = 255

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By the EXIF orientation; 1 is upright."""

_pillow_limit = threading.Lock()


class Unreadable(DsocrError):
    """Why a file is no page: the cause and the way out. The caller names the file."""


def mapped(memory: mmap.mmap | bytes, size: tuple[int, int]) -> Any:
    """Pillow's own RGB image over memory, as it maps files that are not compressed."""
    return Image.core.map_buffer(memory, size, "raw", 0, ("RGB", 0, 1))  # type: ignore[attr-defined]


def black(memory: mmap.mmap, size: tuple[int, int]) -> Any:
    """A black image over the memory: what a reader leaves out is not of the page before.

    Raises Unreadable.
    """
    used = size[0] * size[1] * PIXEL_BYTES
    if used > len(memory):
        raise Unreadable("comes out larger than its header says; save it anew")
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, used)
    return mapped(memory, size)


NOTICES = (
    None,
    "16-bit or float values; as published, all above 255 come out white",
    "transparent; as published, what lies below the transparency is one colour",
)
"""Notices about a page that comes out otherwise than other programs show it."""


class DecodedPage(NamedTuple):
    """A page in RGB, what to say of it, and whether it was turned as its EXIF says."""

    image: Image.Image
    notice: str | None = None
    turned: bool = False


def frames_of(path: str) -> list[int]:
    """The frames of an image that are pages: of a TIFF all but previews. Raises Unreadable."""
    try:
        with _open(path) as image:
            count = getattr(image, "n_frames", 1)
            if count > MOST_FRAMES:
                raise Unreadable(f"{count:,} frames; at most {MOST_FRAMES:,} are read; split it")
            if count == 1 or image.format != "TIFF":
                return list(range(count))
            pages = []
            for frame in range(count):
                image.seek(frame)
                if not image.tag_v2.get(_SUBFILE, 0) & 1:  # type: ignore[attr-defined]  # a smaller copy
                    pages.append(frame)
            return pages or [0]
    except (MemoryError, *DECODE_ERRORS) as error:
        raise Unreadable(f"damaged or truncated image ({cause(error)}); save it anew") from error


def decode(
    path: str, max_pixels: int, memory_bytes: int, memory: mmap.mmap, exif: bool = True, frame: int = 1
) -> DecodedPage:
    """The page in a file as the published code opens it: EXIF orientation applied, then RGB.

    Without `exif` it is not turned. `frame` is a page of a TIFF or an animation, from 1. Alpha, palette, CMYK
    and 16 bit as Pillow's `convert` does them. The size in the header is held against the limits before
    anything is decoded. The pixels are in `memory` at the end, and a PNG or JPEG in RGB is decoded there: a
    copy less. Raises Unreadable.
    """
    try:
        first = 0 if frame == 1 else frames_of(path)[frame - 1]
        with _open(path) as image:
            if first:
                if image.format != "TIFF":  # to seek a frame of an animation is to decode those before it
                    _check_work(image, max_pixels, memory_bytes)
                image.seek(first)
            _check_work(image, max_pixels, memory_bytes)
            made = None
            if (image.format, image.mode) in _DIRECT and not first:
                image.im = made = black(memory, image.size)
            image.load()
            turn = _turn(image) if exif else None
            upright = image if turn is None else image.transpose(turn)
            rgb = upright if upright.mode == "RGB" else upright.convert("RGB")
            if rgb.im is not made:
                black(memory, rgb.size).paste(rgb.im, (0, 0, *rgb.size))
            return DecodedPage(rgb, _notice(upright), turn is not None)
    except UnidentifiedImageError:
        raise Unreadable("not an image of a known format; give a PNG, JPEG or PDF") from None
    except MemoryError as error:
        raise Unreadable(
            f"takes more than {memory_bytes / 1e9:.1f} GB to open; make the image smaller or raise "
            "max_megapixels"
        ) from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"damaged or truncated image ({cause(error)}); save it anew") from error


_DIRECT = {("PNG", "RGB"), ("JPEG", "RGB")}
"""Formats, and modes, whose readers write each pixel of an image once."""


def _open(path: str) -> Image.Image:
    """Open without decoding. Pillow's own pixel limit is global; ours is an argument, checked after."""
    with _pillow_limit:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(path, formats=_formats())
        finally:
            Image.MAX_IMAGE_PIXELS = limit


@functools.cache
def _formats() -> list[str]:
    """Those of _FORMATS that this Pillow was built with."""
    Image.init()  # registers every reader
    return [name for name in _FORMATS if name in Image.OPEN]


def _check_work(image: Image.Image, max_pixels: int, memory_bytes: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise Unreadable(
            f"{width} x {height} pixels are more than the limit of {max_pixels:,}; "
            "make the image smaller or raise max_megapixels"
        )
    if max(width, height) > MOST_SIDE:
        raise Unreadable(
            f"a side of {max(width, height):,} pixels; at most {MOST_SIDE:,} are read; cut the image"
        )
    needed = width * height * WORK_BYTES.get(image.format or "", 0)
    if needed > memory_bytes:
        raise Unreadable(
            f"{width} x {height} pixels in {image.format} take {needed / 1e9:.1f} GB to open, more than "
            f"{memory_bytes / 1e9:.1f} GB; make the image smaller, save it as PNG or raise max_megapixels"
        )


def _notice(image: Image.Image) -> str | None:
    """Say of an image that its conversion to RGB makes white, or of one colour."""
    if image.mode.startswith(("I", "F")):
        return NOTICES[1] if image.getextrema()[1] > _WHITE else None  # type: ignore[operator]
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        alpha = image.getchannel("A") if image.mode != "P" else image.convert("RGBA").getchannel("A")
        if alpha.getextrema()[0] != _WHITE:  # some of it shows what lies below
            colours = image.convert("RGB").getextrema()
            return NOTICES[2] if all(low == high for low, high in colours) else None  # type: ignore[misc]
    return None


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Choose how to turn an image as its EXIF says; not at all when the EXIF is broken, like the published
    code.
    """
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
        if turn is not None:
            # It writes the EXIF anew, which fails for some: on one pixel, for the same answer.
            pixel = Image.new("L", (1, 1))
            pixel.info, pixel._exif = image.info.copy(), image._exif
            ImageOps.exif_transpose(pixel)
        return turn
    except DECODE_ERRORS:
        return None


def cause(error: BaseException) -> str:
    """The error in a few words on one line, without the path that the message names anyway."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:120] or type(error).__name__
