"""PDFs that compute for ever, swell to gigabytes, lie about themselves or are damaged."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

from dsocr_core.page.documents import load_image, pdf_page_count, render_pdf_page
from tests.hostile.damage import damaged

MOST_PIXELS = 4_000_000
DPI = 72

_PAGE_TREE = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>"]


def attempt(random: Random, folder: Path) -> str | None:
    """One PDF, counted and rendered. Raises DsocrError when it is refused."""
    path = folder / "hostile.pdf"
    path.write_bytes(_content(random))
    if pdf_page_count(path) < 1:
        return "a PDF without pages was taken"
    image = load_image(render_pdf_page(path, 1, folder / "pages", DPI, MOST_PIXELS), 2 * MOST_PIXELS)
    return None if image.mode == "RGB" else f"rendered in {image.mode}"


def _content(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.90:
        return damaged(random, random.choice(_INTACT))
    if kind < 0.92:
        return nested_forms(random.randint(2, 30), random.randint(1, 12))
    if kind < 0.94:
        return flate_bomb(10 ** random.randint(4, 8), random.randint(1, 3))
    if kind < 0.96:
        return many_operators(random.randint(1, 200_000))
    if kind < 0.98:
        return soft_masks(random.randint(1, 25))
    return claiming(random.choice((-1, 0, 2, 10**6, 2**31, 10**12)), random.choice((0, 1, 10**5, 10**9, -50)))


def document(objects: list[bytes]) -> bytes:
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
    return document([*_PAGE_TREE, page, content, *(objects or [])])


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


def soft_masks(depth: int) -> bytes:
    """Transparency groups, each masked by the next."""
    objects = []
    for level in range(depth):
        state = 6 + 2 * level
        below = b"/Resources<</ExtGState<</G %d 0 R>>>>" % state
        group = b"/Group<</S/Transparency/CS/DeviceRGB>>"
        drawing = b"/G gs 0 0 595 842 re f"
        objects.append(stream(b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]" + group + below, drawing))
        mask = state + 1 if level < depth - 1 else 5
        objects.append(b"<</Type/ExtGState/SMask<</S/Luminosity/G %d 0 R>>>>" % mask)
    return one_page(stream(b"", b"/G gs 0 0 595 842 re f"), b"/ExtGState<</G 6 0 R>>", objects)


def with_form(unit: bytes) -> bytes:
    """A page with a filled field, and a UserUnit."""
    catalogue = b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]/DA(/Helv 0 Tf 0 g)>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/UserUnit %s/Annots[4 0 R]>>" % unit
    field = b"<</Subtype/Widget/FT/Tx/F 4/P 3 0 R/T(a)/V(text)/Rect[20 20 280 120]/DA(/Helv 40 Tf 0 g)>>"
    return document([catalogue, _PAGE_TREE[1], page, field])


def claiming(pages: int, side: int) -> bytes:
    """A PDF that says it has so many pages, its one page so large."""
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % pages
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents 4 0 R>>" % (side, side)
    return document([_PAGE_TREE[0], tree, page, stream(b"", b"0 0 9 9 re f")])


_INTACT = (
    many_operators(3), nested_forms(3, 2), flate_bomb(2_000, 1), soft_masks(2), claiming(1, 200),
    with_form(b"1.5"), with_form(b"-1"), with_form(b"75000"),
)  # fmt: skip
