"""The Timing page in a real browser, on a made-up history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import timed_history
from tests.support.browser_driver import Server, ink, serve
from tests.support.paths import APPS

pytestmark = pytest.mark.browser
ROWS = ".dsocr-bars-row:has(.dsocr-bars-track) > span"
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
VIEWS = {
    "stages": "every=on&runs=run-13&runs=cpu-both&runs=means&runs=hostile",
    "trend": "view=Trend",
    "against": "view=A+against+B&a=run-05&b=partial",
    "kernels": "view=Kernels",
}
SHOWN = {
    "stages": "Medians over each run's pages",
    "trend": "change of level",
    "against": "9 of 12 pages compared",
    "kernels": "longest kernels by their share",
}
"""What each view says on its picture."""


@pytest.fixture(scope="module")
def timing(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("timing")
    timed_history.make(folder / "history")
    script = APPS / "history_app.py"
    with serve(script, folder / "log", "timing", str(folder / "history")) as server:
        yield server, folder / "history"


def drawn(page: Page) -> Page:
    """Wait until a chart is there and the script rests."""
    page.locator(f"{ROWS}, .js-plotly-plot .main-svg").first.wait_for()
    page.locator(IDLE).wait_for()
    return page


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1280, "light", marks=pytest.mark.slow),
        pytest.param(800, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(800, "light", marks=pytest.mark.slow),
    ],
)
def test_every_view_draws_without_an_error_in_every_size_and_scheme(
    timing, open_page, screenshots, width: int, scheme: str
) -> None:
    server, _ = timing
    for view, address in VIEWS.items():
        page = drawn(open_page(f"{server.url}/?{address}", width, 1500, scheme))
        assert page.locator(".stException").count() == 0
        assert page.locator(".stAlert").count() == 0
        page.locator("[data-testid=stMain]").get_by_text(SHOWN[view]).first.wait_for()
        expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0)
        page.screenshot(path=screenshots / f"timing-{width}-{scheme}-{view}.png")
        for chart in page.locator(".dsocr-bars, .js-plotly-plot").all():
            assert ink(chart) > 0.01, view
    assert len(list(screenshots.glob(f"timing-{width}-{scheme}-*.png"))) == len(VIEWS)
