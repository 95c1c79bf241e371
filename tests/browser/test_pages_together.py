"""A document of three pages that was read in one prompt: its pages over the viewer, boxes of the second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from dsocr_core.page.documents import expand, load_image
from dsocr_core.reading.fingerprints import required_files
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.record import Recording
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.settings import Settings
from tests.support.browser_driver import ROOT, Server, Viewer, serve_app
from tests.support.paths import SAMPLES
from tests.support.results import make_result
from tests.support.seeded_weights import tiny_unlimited_config, write_seeded_checkpoint

pytestmark = pytest.mark.browser
PAGES = ("01-letter.png", "02-invoice.png", "06-small-ticket.png")


def text_of(total: str) -> str:
    blocks = {
        1: [("title", (80, 60, 520, 110), "Dear reader"), ("text", (80, 140, 900, 400), "First page.")],
        2: [("title", (80, 60, 520, 110), "Invoice"), ("text", (80, 300, 900, 500), f"Total {total}")],
        3: [("text", (80, 60, 900, 200), "Third page.")],
    }
    return "".join(
        "<PAGE>\n"
        + "".join(f"<|det|>{label} {list(box)}<|/det|>{words}\n" for label, box, words in blocks[page])
        for page in blocks
    )


@pytest.fixture(scope="module")
def document_file() -> Path:
    """A PDF of three samples, in a folder from which the app reads."""
    first, *others = (Image.open(SAMPLES / name).convert("L") for name in PAGES)
    file = ROOT / "build" / "three-pages.pdf"
    file.parent.mkdir(exist_ok=True)
    first.save(file, save_all=True, append_images=others)
    return file


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, browser: Browser, document_file: Path) -> Iterator[Server]:
    """The app on a tiny Unlimited-OCR, which has the document's reading of both sides on record."""
    folder = tmp_path_factory.mktemp("together")
    checkpoint = write_seeded_checkpoint(tiny_unlimited_config(), folder / "unlimited")
    settings = Settings(checkpoint=str(checkpoint), history=str(folder / "history")).for_comparison()
    [document] = expand([document_file], work_directory=folder / "runs" / "pages").together(9)
    request = settings.request(document.path, document.source, document.more)
    file, *more = required_files(request)
    request = replace(request, file=file, more_files=tuple(more))

    def read(backend: str, total: str) -> OcrResult:
        size, *others = (load_image(image).size for image in request.images)
        made = make_result(text_of(total), backend, image_size=size)
        return replace(made, request=request, more_sizes=tuple(others))

    pair = Comparison(request, read("eager", "1,234.00"), read("vendor", "7,234.00"))
    cache = ResultCache(settings, folder / "runs" / "cache")
    for result in pair.results.values():
        cache.add(result)
    with Recording(settings) as run:
        run.add(document.source, pair)
    with serve_app(folder, f"checkpoint: {checkpoint}\n") as server:
        yield server


def choose_second(page: Page, viewer: Viewer) -> None:
    """The pager leads to the second page; its boxes are selected, not the first page's."""
    page.get_by_role("button", name="Next page").click()
    page.locator('.viewer[data-image*="three-pages.pdf#1-31:"]').wait_for()
    viewer.wait(a="2", b="2")
    viewer.click("a", 1)
    viewer.wait(selected="1")
    assert "Total 1,234.00" in viewer.text("a") and "Total 7,234.00" in viewer.text("b")


def test_compare_and_review_show_a_document_page_by_page(
    app: Server, document_file: Path, open_page, screenshots: Path
) -> None:
    page = open_page(f"{app.url}/?source=File&together=on")
    page.get_by_placeholder("or a path: page.png, paper.pdf, a folder").fill(str(document_file))
    page.keyboard.press("Enter")
    viewer = Viewer(page).wait(a="2", b="2")
    expect(page.get_by_text("A reads 1,234.00, B 7,234.00.", exact=False).first).to_be_visible()
    choose_second(page, viewer)
    assert viewer.root.locator(".texts").get_by_text("First page.").count() == 0
    page.screenshot(path=screenshots / "pages-together.png", full_page=True)
    page.get_by_role("button", name="Next page").click()
    viewer.wait(a="1", b="1", selected="")
    page.goto(f"{app.url}/review")  # which shows it in the same way
    page.locator(".gallery button").first.click()
    choose_second(page, viewer.wait(a="2", b="2"))
