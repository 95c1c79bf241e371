"""Which picture a review shows of a page: the source, the run's clean page, the one with boxes, none."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from dsocr_core.reading.artifacts import Export
from dsocr_core.reading.clean import FOLDER, clean_pages
from dsocr_core.reading.records import OcrRequest
from dsocr_core.review.html import html_report
from dsocr_core.review.pictures import PagePicture, overlay
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import PageResults
from tests.support.made_up_runs import record
from tests.support.results import make_result

SIZE = (3996, 2997)
"""Larger than what a run stores, which has 1998 x 1499 pixels; 4 and 3 pixels are 1 of 999."""
TEXT = "<|ref|>text<|/ref|><|det|>[[333, 333, 666, 666]]<|/det|>\nthe middle"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A white page with a red block where TEXT says that its box is."""
    picture = Image.new("RGB", SIZE, "white")
    ImageDraw.Draw(picture).rectangle((1332, 999, 2664, 1998), fill=(255, 0, 0))
    path = tmp_path / "page.jpg"
    picture.save(path)
    return path


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "h") as history:
        yield history


@pytest.fixture
def review(history: History, source: Path) -> Review:
    """A run of both backends with clean pages and, as earlier versions wrote them, pages with boxes."""
    picture = Image.open(source).convert("RGB")
    with history.writer(record("run-1", backends=("eager", "vendor"))) as run:
        for backend, text in (("eager", TEXT), ("vendor", TEXT.replace("666", "600"))):
            result = make_result(text, backend, image=source, image_size=SIZE)
            clean = clean_pages(OcrRequest(source), [picture])
            run.add(PageResults("page.png", results=[result], clean=clean))
            Export(run.directory, "eager").add(result, [picture])
    history.refresh()
    return open_review(history, "run-1")


def found(review: Review, page: str = "page.png", sheet: int = 0) -> PagePicture | None:
    """The picture as a review finds it that is opened now."""
    return open_review(review.history, review.key).picture(page, sheet)


def clean_file(review: Review) -> Path:
    [file] = (review.history.directory(review.key) / FOLDER).iterdir()  # one for both backends
    return file


def test_the_source_then_the_clean_page_then_the_boxes_then_none(review: Review, source: Path) -> None:
    assert found(review) == PagePicture(source, False, *SIZE)
    source.write_bytes(b"another page by now")
    assert found(review) == PagePicture(clean_file(review), False, *SIZE)
    clean_file(review).unlink()
    picture = found(review)
    assert picture is not None and picture.with_boxes and "vendor" in picture.path.parts
    for folder in ("vendor", "viz"):
        shutil.rmtree(review.history.directory(review.key) / folder)
    assert found(review) is None


def test_boxes_lie_right_on_a_smaller_picture(review: Review, source: Path) -> None:
    source.unlink()
    picture = found(review)
    assert picture is not None
    stored = Image.open(picture.path).convert("RGB")
    assert stored.size == (1998, 1499)
    # At 999 pixels the block lies in 333..666, 250..500; the vendor's box ends at 600, 450.
    drawn = Image.open(io.BytesIO(overlay(picture, review.page("page.png"), 999))).convert("RGB")
    assert drawn.size == (999, 749)
    for image, scale in ((stored.resize(SIZE), 4), (drawn, 1)):
        inside, outside = (image.getpixel((x * scale, 350 * scale)) for x in (500, 200))
        assert inside == pytest.approx((255, 0, 0), abs=12) and outside == pytest.approx((255,) * 3, abs=12)
    for border in ((333, 400), (666, 400), (500, 250), (500, 500)):
        assert drawn.getpixel(border) != pytest.approx((255, 0, 0), abs=60)
    report = html_report(open_review(review.history, review.key))
    assert "data:image/jpeg" in report and "empty sheet" not in report and "one side" not in report
