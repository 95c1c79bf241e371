"""Images that lie in their header, are damaged, or take far more than their pixels to open."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from pathlib import Path
from random import Random

from PIL import Image

from dsocr_core.page.documents import expand, load_image
from tests.hostile.damage import damaged

MOST_PIXELS = 20_000_000
_FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM", "JPEG2000", "AVIF")
_RGB_ONLY = ("AVIF", "WEBP", "JPEG2000")
_MODES = ("RGB", "L", "1", "RGBA", "I;16", "F")


def attempt(random: Random, folder: Path) -> str | None:
    """One image, opened. Raises DsocrError when it is refused."""
    path = folder / random.choice(("a.png", "a.jpg", "a.tif", "a", "a.webp", "é.gif"))
    if random.random() < 0.08:
        path.write_bytes(_claiming(random))
    else:
        path.write_bytes(damaged(random, _intact(random.choice(_FORMATS), random.choice(_MODES))))
    if random.random() < 0.3:
        path.write_bytes(
            damaged(random, _pages(random.randint(1, 8), random.choice(("TIFF", "GIF", "WEBP"))))
        )
    (page, *_) = expand([path], work_directory=folder / "pages", max_pixels=MOST_PIXELS)
    image = load_image(page.path, MOST_PIXELS)
    if image.mode != "RGB" or not 0 < image.width * image.height <= MOST_PIXELS:
        return f"an image of {image.size} in {image.mode} was taken"
    return None


@functools.cache
def _intact(kind: str, mode: str) -> bytes:
    image = Image.effect_noise((37, 23), 90)
    deep = kind not in ("TIFF", "PNG") or (kind == "PNG" and mode == "F")
    plain = kind in _RGB_ONLY or (deep and mode in _MODES[3:])
    buffer = io.BytesIO()
    image.convert("RGB" if plain else mode).save(buffer, kind)
    return buffer.getvalue()


@functools.cache
def _pages(orientation: int, kind: str) -> bytes:
    """Three pages in one file; of a TIFF turned, as its EXIF says."""
    frames = [Image.effect_noise((37, 23), 30 * number).convert("RGB") for number in range(3)]
    buffer = io.BytesIO()
    more = {"tiffinfo": {0x0112: orientation}} if kind == "TIFF" else {}
    frames[0].save(buffer, kind, save_all=True, append_images=frames[1:], **more)
    return buffer.getvalue()


def _claiming(random: Random) -> bytes:
    """A PNG whose header says any size, over rows that may be there or not."""
    sides = (1, 2, 4_000, 65_535, 65_536, 10**7, 10**8, 2**31 - 1)
    width, height = random.choice(sides), random.choice(sides)
    depth, colour = random.choice(((8, 0), (8, 2), (8, 6), (16, 2), (1, 0), (8, 3), (7, 9)))
    rows = zlib.compress(bytes(min(10**6, random.choice((1, 1000, 10**6)))))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, random.choice((0, 1)))
    chunks = [(b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")]
    if random.random() < 0.3:
        chunks.insert(1, (b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6))))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
