"""Which picture a review shows of a page: the source, the run's clean page, the one with boxes, none."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from dsocr_core.reading.clean import FOLDER, clean_pages
from dsocr_core.reading.fingerprints import required_files
from dsocr_core.reading.records import OcrRequest
from dsocr_core.review.html import html_report
from dsocr_core.review.pictures import PagePicture, overlay
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import PageResults
from tests.support.made_up_runs import record
from tests.support.results import make_result, of_pages
from tests.support.with_boxes import add_with_boxes

SIZE = (3996, 2997)
"""Larger than what a run keeps, which has 1998 x 1499 pixels; 4 and 3 pixels are 1 of 999."""

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


def keep(history: History, source: Path, run_id: str = "run-1", pictures: bool = True) -> str:
    """A run with both backends on the page, as the command line keeps it."""
    picture = Image.open(source).convert("RGB")
    with history.writer(record(run_id, backends=("eager", "vendor"))) as run:
        for backend in ("eager", "vendor"):
            text = TEXT if backend == "eager" else TEXT.replace("666", "600")
            result = make_result(text, backend, image=source, image_size=SIZE)  # type: ignore[arg-type]
            if pictures:
                add_with_boxes(run, "page.png", result, picture)
            else:
                run.add(PageResults("page.png", results=[result]))
        [clean] = clean_pages(OcrRequest(source), [picture])
        clean.write(run.directory)
    history.refresh()
    return run_id


def found(history: History, run_id: str = "run-1") -> PagePicture | None:
    return open_review(history, run_id).picture("page.png")


def clean_files(history: History, run_id: str = "run-1") -> list[str]:
    return [f"{FOLDER}/{file.name}" for file in sorted((history.directory(run_id) / FOLDER).glob("*"))]


def test_the_source_then_the_clean_page_then_the_boxes_then_none(history: History, source: Path) -> None:
    run_id = keep(history, source)
    picture = found(history)
    assert picture is not None and (picture.path, picture.with_boxes) == (source, False)
    source.write_bytes(b"another page by now")
    picture = found(history)
    (clean,) = clean_files(history)  # one for both backends
    assert picture == PagePicture(history.file(run_id, clean), False, *SIZE)
    history.file(run_id, clean).unlink()
    picture = found(history)
    assert picture is not None and picture.with_boxes and "vendor" in picture.path.parts
    shutil.rmtree(picture.path.parents[1])
    shutil.rmtree(history.file(run_id, "run.json").parent / "viz")
    assert found(history) is None


def test_further_pages_of_a_prompt_have_pictures_of_their_own(history: History, source: Path) -> None:
    """By its file, then by its clean picture; each in its own size."""
    second = source.with_name("second.png")
    Image.new("RGB", (60, 40), "white").save(second)
    result = of_pages(make_result("<PAGE>a<PAGE>b", image=source, image_size=SIZE), (60, 40))
    request = replace(result.request, more=(second,))
    file, *more = required_files(request)
    request = replace(request, file=file, more_files=tuple(more))
    with history.writer(record("run-2", backends=("eager",))) as run:
        run.add(PageResults("both", results=[replace(result, request=request)]))
        run.add(PageResults("both", results=[replace(result, request=request, backend="vendor")]))
        for clean in clean_pages(request, [Image.open(image).convert("RGB") for image in request.images]):
            clean.write(run.directory)
    history.refresh()
    found = open_review(history, "run-2").picture("both", 1)
    assert found == PagePicture(second, False, 60, 40)
    second.unlink()
    found = open_review(history, "run-2").picture("both", 1)
    assert found is not None and found.path.parent.name == FOLDER
    assert (found.width, found.height) == Image.open(found.path).size == (60, 40)


def test_boxes_lie_right_on_a_smaller_picture(history: History, source: Path) -> None:
    keep(history, source)
    source.unlink()
    picture = found(history)
    assert picture is not None
    with Image.open(picture.path) as kept:
        assert kept.size == (1998, 1499)
    whole = Image.open(picture.path).convert("RGB").resize(SIZE)
    page = open_review(history, "run-1").page("page.png")
    # At 999 pixels the block lies in 333..666, 250..500; the vendor's box ends at 600, 450.
    drawn = Image.open(io.BytesIO(overlay(picture, page, 999))).convert("RGB")
    assert drawn.size == (999, 749)
    for image, scale in ((whole, 4), (drawn, 1)):
        inside, outside = (image.getpixel((x * scale, 350 * scale)) for x in (500, 200))
        assert inside == pytest.approx((255, 0, 0), abs=12) and outside == pytest.approx((255,) * 3, abs=12)
    for border in ((333, 400), (666, 400), (500, 250), (500, 500)):
        assert drawn.getpixel(border) != pytest.approx((255, 0, 0), abs=60)
    report = html_report(open_review(history, "run-1"))
    assert "data:image/jpeg" in report and "empty sheet" not in report and "one side" not in report


def of_size(size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size).save(buffer, "JPEG")
    return buffer.getvalue()


def test_a_clean_page_that_is_none_is_passed_over(history: History, source: Path) -> None:
    keep(history, source)
    source.unlink()
    file = history.file("run-1", *clean_files(history))
    for content in (of_size((1499, 1998)), of_size((3996, 2997)), b"GIF89a", b"", bytes(2**21)):
        file.write_bytes(content)
        picture = found(history)
        assert picture is not None and picture.with_boxes
