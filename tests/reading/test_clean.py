"""The picture of a page in a run: small enough, true to the page, refused when it is another file."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dsocr_core.reading.clean import MOST_BYTES, MOST_SIDE, clean_pages, clean_path, is_clean_page
from dsocr_core.reading.records import OcrRequest

SHA = "0123456789abcdef" * 4


def written(picture: Image.Image, folder: Path) -> Path:
    """The file that a run has of a page."""
    source = folder / "page.png"
    source.write_bytes(b"of which only the content counts")
    [(path, content)] = clean_pages(OcrRequest(source), [picture]).items()
    file = folder / "run" / path
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


def test_a_page_lies_under_its_files_content(tmp_path: Path) -> None:
    picture = Image.new("RGB", (300, 200), "white")
    picture.paste((200, 30, 30), (100, 50, 200, 100))
    file = written(picture, tmp_path)
    digest = hashlib.sha256((tmp_path / "page.png").read_bytes()).hexdigest()
    assert file == tmp_path / "run" / "clean" / f"{digest}.jpg" and is_clean_page(file, 300, 200)
    with Image.open(file) as found:
        assert (found.format, found.size) == ("JPEG", (300, 200))
        assert found.getpixel((150, 75)) == pytest.approx((200, 30, 30), abs=6)
    assert clean_pages(OcrRequest(tmp_path / "gone.png"), [picture]) == {}


def noise() -> Image.Image:
    side = (MOST_SIDE, MOST_SIDE, 3)
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, side, dtype=np.uint8))


@pytest.mark.parametrize(
    ("size", "small"),
    [
        ((1240, 1754), (1240, 1754)), ((2480, 3508), (1240, 1754)), ((4001, 3), (2001, 2)),
        ((1, 9000), (1, 3000)), (None, (1000, 1000)),  # noise, which at 3000 has 3.5 MiB
    ],
)  # fmt: skip
def test_a_large_page_is_made_smaller_in_its_proportions(
    tmp_path: Path, size: tuple[int, int] | None, small: tuple[int, int]
) -> None:
    file = written(Image.new("RGB", size, "white") if size else noise(), tmp_path)
    assert Image.open(file).size == small and file.stat().st_size <= MOST_BYTES
    assert is_clean_page(file, *(size or (MOST_SIDE, MOST_SIDE)))


def encoded(size: tuple[int, int], form: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, form, **options)
    return buffer.getvalue()


def test_what_is_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "page.jpg"
    file.write_bytes(encoded((500, 400)))
    assert is_clean_page(file, 1000, 800)
    small = bytearray(encoded((8, 8)))
    frame = small.index(b"\xff\xc0")
    small[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"  # a header of 65,500 pixels a side, 12 GB as RGB
    odd = (
        small, encoded((3001, 2401)), encoded((800, 1000)), encoded((500, 405)), encoded((500, 400), "PNG"),
        encoded((500, 400), progressive=True), encoded((500, 400)) + bytes(MOST_BYTES),
        encoded((500, 400))[:20], b"", b"<svg onload=alert(1)>",
    )  # fmt: skip
    for number, content in enumerate(odd):
        file.write_bytes(content)
        assert not is_clean_page(file, 1000, 800), number
    assert clean_path(SHA) == f"clean/{SHA}.jpg"
    assert {*map(clean_path, (None, "", SHA[:-1], SHA.upper(), f"../{SHA}"[:64], f"{SHA}\n"))} == {None}
