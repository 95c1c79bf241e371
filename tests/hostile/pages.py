"""Images and PDFs that lie about themselves, are damaged, compute for ever or swell to gigabytes."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from PIL import Image

from dsocr_core.page.documents import expand, load_image, pdf_page_count, render_pdf_page
from tests.hostile.damage import damaged

MOST_PIXELS = 20_000_000
_MODES = {
    "PNG": ("RGB", "L", "1", "RGBA", "I;16"), "TIFF": ("RGB", "L", "1", "RGBA", "I;16", "F"),
    "JPEG": ("RGB", "L"), "GIF": ("RGB", "L", "1"), "BMP": ("RGB", "L", "1"), "PPM": ("RGB", "L", "1"),
    "AVIF": ("RGB",), "WEBP": ("RGB",), "JPEG2000": ("RGB",),
}  # fmt: skip
PAGE_TREE = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>"]


# --- images -----------------------------------------------------------------------------------------


def images(random: Random, folder: Path) -> str | None:
    """One image, opened. Raises DsocrError when it is refused."""
    path = folder / random.choice(("a.png", "a.jpg", "a.tif", "a", "a.webp", "é.gif"))
    kind = random.choice([*_MODES])
    intact = _intact(kind, random.choice(_MODES[kind]))
    path.write_bytes(_claiming_image(random) if random.random() < 0.08 else damaged(random, intact))
    (page, *_) = expand([path], work_directory=folder / "pages", max_pixels=MOST_PIXELS)
    image = load_image(page.path, MOST_PIXELS)
    if image.mode != "RGB" or not 0 < image.width * image.height <= MOST_PIXELS:
        return f"an image of {image.size} in {image.mode} was taken"
    return None


@functools.cache
def _intact(kind: str, mode: str) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((37, 23), 90).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def _claiming_image(random: Random) -> bytes:
    """A PNG whose header says any size, over rows that may be there or not."""
    size = random.choices((1, 2, 4_000, 65_535, 65_536, 10**7, 10**8, 2**31 - 1), k=2)
    depth = random.choice(((8, 0), (8, 2), (8, 6), (16, 2), (1, 0), (8, 3), (7, 9)))
    text = [(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6)))] * (random.random() < 0.3)
    return png((*size, *depth, 0, 0, random.choice((0, 1))), bytes(random.choice((1, 1000, 10**6))), *text)


def png(header: tuple[int, ...], rows: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A PNG of this header and these rows, whatever the one says of the other."""
    start = (b"IHDR", struct.pack(">IIBBBBB", *header))
    chunks = (start, *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


# --- PDFs -------------------------------------------------------------------------------------------


def pdfs(random: Random, folder: Path) -> str | None:
    """One PDF, counted and rendered. Raises DsocrError when it is refused."""
    path = folder / "hostile.pdf"
    path.write_bytes(_pdf(random))
    if pdf_page_count(path) < 1:
        return "a PDF without pages was taken"
    image = load_image(render_pdf_page(path, 1, folder / "pages", 72, 4_000_000), 8_000_000)
    return None if image.mode == "RGB" else f"rendered in {image.mode}"


def _pdf(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.90:
        return damaged(random, random.choice(_INTACT))
    if kind < 0.92:
        return nested_forms(random.randint(2, 30), random.randint(1, 12))
    if kind < 0.94:
        return flate_bomb(10 ** random.randint(4, 8), random.randint(1, 3))
    if kind < 0.97:
        return many_operators(random.randint(1, 200_000))
    return claiming(random.choice((-1, 0, 2, 10**6, 2**31, 10**12)), random.choice((0, 1, 10**5, 10**9, -50)))


def document(objects: Sequence[bytes]) -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    body, offsets = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj" % number + content + b"endobj\n"
    table = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    table += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(body))
    return body + table + trailer


def stream(dictionary: bytes, data: bytes) -> bytes:
    return b"<<%s/Length %d>>stream\n" % (dictionary, len(data)) + data + b"\nendstream "


def one_page(content: bytes, resources: bytes = b"", objects: list[bytes] | None = None) -> bytes:
    """A page of A4 with this content stream as object 4; further objects from 5 on."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<<%s>>/Contents 4 0 R>>" % resources
    return document([*PAGE_TREE, page, content, *(objects or [])])


def nested_forms(depth: int, times: int) -> bytes:
    """Forms that draw the next one so many times: times ** depth drawings from a few kilobytes."""
    forms = []
    for level in range(depth):
        last = level == depth - 1
        below = b"" if last else b"/Resources<</XObject<</F %d 0 R>>>>" % (6 + level)
        drawing = b"0 0 9 9 re f" if last else b"/F Do " * times
        forms.append(stream(b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]" + below, drawing))
    return one_page(stream(b"", b"/F Do " * times), b"/XObject<</F 5 0 R>>", forms)


def flate_bomb(size: int, times: int) -> bytes:
    """A content stream of so many blanks, compressed so many times."""
    data = b" " * size
    for _ in range(times):
        data = zlib.compress(data, 6)
    return one_page(stream(b"/Filter[%s]" % (b"/FlateDecode " * times), data))


def many_operators(count: int) -> bytes:
    return one_page(stream(b"", b"0 0 500 800 re f 1 2 m 500 700 l S\n" * count))


def claiming(pages: int, side: int) -> bytes:
    """A PDF that says it has so many pages, its one page so large."""
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % pages
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents 4 0 R>>" % (side, side)
    return document([PAGE_TREE[0], tree, page, stream(b"", b"0 0 9 9 re f")])


_INTACT = many_operators(3), nested_forms(3, 2), flate_bomb(2_000, 1), claiming(1, 200)
