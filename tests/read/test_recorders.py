"""The recorders of a run: who hears of a page, and what a page that cannot be written is for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.read.prefetch import PageDone, PageFailed, PageToRead
from dsocr_core.read.recorders import PageRead, Recorder, Recorders
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings
from tests.support.results import make_result


class Notebook(Recorder):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def skip(self, page: PageDone) -> None:
        self.heard.append(("skip", page.source))

    def add(self, read: PageRead) -> None:
        size = read.pictures[0].size if read.pictures else None
        self.heard.append(("add", read.page.source, size, bool(read.clean)))

    def add_failure(self, page: PageFailed) -> None:
        self.heard.append(("failure", page.source, page.error, page.image))


class FullDisk(Notebook):
    def add(self, read: PageRead) -> None:
        raise DsocrError("disk: no space left")


@pytest.fixture
def page(tmp_path: Path) -> PageToRead:
    path = tmp_path / "page.png"
    Image.new("RGB", (16, 12), "white").save(path)
    return PageToRead("page.png", OcrRequest(path, "tiny"), {"eager": "key"})


def read(page: PageToRead) -> Comparison:
    return Comparison(page.request, make_result(backend="eager", image=page.request.image))


def test_every_recorder_hears_of_every_page(page: PageToRead) -> None:
    notebooks = [Notebook(), Notebook()]
    recorders = Recorders(Settings(device="cpu", clean_pages=False), notebooks)
    recorders.skip(PageDone("first.png"))
    recorders.add(page, read(page))
    recorders.add_failure(PageFailed("third.png", "torn"))
    assert (
        notebooks[0].heard
        == notebooks[1].heard
        == [
            ("skip", "first.png"),
            ("add", "page.png", (16, 12), False),
            ("failure", "third.png", "torn", None),
        ]
    )


def test_a_page_that_one_recorder_cannot_write_has_failed_for_all(page: PageToRead) -> None:
    before, full, after = Notebook(), FullDisk(), Notebook()
    Recorders(Settings(device="cpu"), [before, full, after]).add(page, read(page))
    failure = ("failure", "page.png", "disk: no space left", page.request.image)
    assert before.heard == [("add", "page.png", (16, 12), True), failure]
    assert full.heard == after.heard == [failure]


def test_a_page_that_no_backend_read_needs_no_picture(page: PageToRead) -> None:
    notebook = Notebook()
    page.request.image.unlink()
    comparison = Comparison(page.request, errors={"a": "out of memory"})
    Recorders(Settings(device="cpu"), [notebook]).add(page, comparison)
    assert notebook.heard == [("add", "page.png", None, False)]
