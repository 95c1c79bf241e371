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


def rows(page: Page) -> list[str]:
    """Labels beside the bars."""
    return page.locator(ROWS).all_text_contents()


def test_a_filter_narrows_the_page_and_its_link_shows_the_same(timing, open_page) -> None:
    server, _ = timing
    page = drawn(open_page(server.url))
    assert len(rows(page)) == 5
    page.get_by_test_id("stSidebar").locator('[data-testid="stMultiSelect"]', has_text="Engine").locator(
        "input"
    ).click()
    page.get_by_role("option", name="eager").click()
    page.get_by_text("1 of 19 runs").wait_for()
    expect(page.locator(ROWS)).to_have_count(2)
    page.wait_for_url("**engine=eager**")
    shown = rows(page)
    assert any("eager" in row for row in shown)
    again = drawn(open_page(page.url))
    assert rows(again) == shown
    again.get_by_text("1 of 19 runs").wait_for()


def test_new_runs_wait_for_their_reader(timing, open_page) -> None:
    server, folder = timing
    page = drawn(open_page(f"{server.url}/?view=Trend"))
    page.get_by_text("17 of 19 runs").wait_for()
    timed_history.write(folder, timed_history.record("later", 20), timed_history.paced(99))
    button = page.get_by_role("button", name="1 new run")
    button.wait_for()
    expect(page.get_by_text("17 of 19 runs")).to_be_visible()
    button.click()
    page.get_by_text("18 of 20 runs").wait_for()


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
