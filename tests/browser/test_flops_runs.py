"""Runs of the history on the FLOPs page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser_driver import Server, serve
from tests.support.paths import APPS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def flops(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("flops")
    with serve(APPS / "flops_app.py", folder / "log", str(folder)) as server:
        yield server


def drawn(page: Page) -> Page:
    page.locator(".dsocr-bars, .js-plotly-plot .main-svg").first.wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    return page


def test_a_page_of_a_run_and_its_link(flops: Server, open_page, screenshots: Path) -> None:
    page = drawn(open_page(flops.url))
    page.get_by_role("tab", name="Against measured").click()
    page.get_by_text("Time recorded on cpu by eager, ours").wait_for()
    page.locator(".st-key-flops-page").get_by_role("combobox").click()
    page.get_by_role("option", name="slide_wide.png").click()
    expect(page.locator(".dsocr-strip").first).to_contain_text("1,500 x 700 px, small")
    page.wait_for_url("**page=slide_wide.png**")
    drawn(page).screenshot(path=screenshots / "flops-run-1280-light.png")
    fresh = drawn(open_page(page.url, 800, 1000, "dark"))
    fresh.get_by_text("Time recorded on cpu by eager, ours").wait_for()
    for part in (".dsocr-strip", "[data-testid=stMain] [data-testid=stCaptionContainer]"):
        assert fresh.locator(part).all_inner_texts() == page.locator(part).all_inner_texts()
    assert fresh.url == page.url
    assert fresh.locator(".stAlert").count() == 0
    fresh.screenshot(path=screenshots / "flops-run-800-dark.png")
