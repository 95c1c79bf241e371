"""The picture of a page in a run: small enough, and true to the page."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dsocr_core.reading.clean import MOST_BYTES, MOST_SIDE, clean_pages, clean_path, jpeg
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
    assert file == tmp_path / "run" / "clean" / f"{digest}.jpg"
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


def test_no_other_name_leads_out_of_the_run() -> None:
    assert clean_path(SHA) == f"clean/{SHA}.jpg"
    assert {*map(clean_path, (None, "", SHA[:-1], SHA.upper(), f"../{SHA}"[:64], f"{SHA}\n"))} == {None}


class Saved:
    """A picture that knows what it was saved into."""

    def save(self, file: Any, form: str, **options: object) -> None:
        self.descriptor = file.fileno()
        file.write(f"{form} {options}".encode())


@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_pictures_are_encoded_into_a_file_as_other_threads_run_only_then(
    monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    if system == "macOS":
        monkeypatch.delattr("os.memfd_create", raising=False)
    elif hasattr(os, "memfd_create"):  # a temporary folder may be full or not there
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    saved: Any = Saved()
    assert jpeg(saved, quality=80) == b"JPEG {'quality': 80}" and saved.descriptor
    picture, buffer = Image.effect_noise((200, 100), 80).convert("RGB"), io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    assert jpeg(picture, quality=80) == buffer.getvalue()
