"""The FLOPs page in a real browser."""

from __future__ import annotations

import re
import time
from itertools import combinations

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser_driver import Server, ink

pytestmark = pytest.mark.browser
"""Two cores shared with other work: torch alone may take a while to load."""
MARKS = 0.01
"""Share of a chart that axes, words and marks cover at least; an empty one has none."""
SHOWN = {
    "Cost": "What is computed, what has to move",
    "Against measured": "Time recorded on",
    "Sweep": "FLOPs of products and convolutions over tiles",
    "Requirements": "Compute and bandwidth that the target takes",
}
"""What each view says on its picture."""


CHARTS = ".dsocr-bars, .js-plotly-plot"
STAGE_BARS = ".dsocr-bars-track i"


def drawn(page: Page) -> None:
    """Until the page has an answer and stands still."""
    page.locator(".stTabs").wait_for()
    page.locator(".dsocr-strip").first.wait_for()
    page.locator('[data-test-script-state="notRunning"]').wait_for()
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0)


def test_a_slider_changes_the_chart_at_once(server: Server, open_page) -> None:
    page = open_page(f"{server.url}/flops?work=Sizes")
    drawn(page)
    page.locator(STAGE_BARS).first.wait_for()
    widths = "(bars) => Array.from(bars, bar => bar.getBoundingClientRect().width)"
    before = page.locator(STAGE_BARS).evaluate_all(widths)
    slider = page.locator(".st-key-flops-tokens input[type=range]")
    slider.focus()
    began = time.monotonic()
    page.keyboard.press("Home")
    expect(page.locator(".dsocr-strip")).to_contain_text("new 1work")
    page.wait_for_url(re.compile("tokens=1(&|$)"))
    print(f"the strip followed the slider after {time.monotonic() - began:.2f} s")
    page.wait_for_function(
        """([bars, before]) => Array.from(document.querySelectorAll(bars)).some(
            (bar, i) => Math.abs(bar.getBoundingClientRect().width - before[i]) > 5
        )""",
        arg=[STAGE_BARS, before],
    )
    assert page.locator(".stAlert").count() == 0

    shape = page.locator(".st-key-flops-aspect input[type=range]")
    shape.focus()
    page.keyboard.press("End")
    expect(page.locator(".dsocr-strip")).to_contain_text("tiles 9 x 1")


def test_every_view_draws_its_chart_in_a_narrow_window(server: Server, open_page) -> None:
    page = open_page(f"{server.url}/flops?work=Recorded+page&page=09-report-picture", 800, 900, "dark")
    for view in SHOWN:
        page.get_by_role("tab", name=view).click()
        drawn(page)
        page.locator(f"{STAGE_BARS}, .js-plotly-plot .main-svg").first.wait_for()
        assert page.locator(".stAlert").count() == 0
        assert ink(page.locator(CHARTS).first) > MARKS, view
        page.locator(".stTabs").get_by_text(SHOWN[view]).first.wait_for()


@pytest.mark.parametrize(
    "address",
    [
        "flops?view=Against+measured",
        "timing?view=Kernels&run=20261123-113401-ncu-eager&against=20261123-230246-ncu-fast",
    ],
)
def test_the_words_of_a_roofline_stand_apart_on_a_phone(server: Server, open_page, address: str) -> None:
    page = open_page(f"{server.url}/{address}", 390, 844)
    chart = page.locator(".js-plotly-plot", has=page.locator(".annotation-text"))
    chart.locator(".annotation-text", has_text="compute bound").wait_for()
    chart.scroll_into_view_if_needed()
    rooms = "all => all.map(each => each.getBoundingClientRect().toJSON())"
    words = chart.locator(".annotation-text").evaluate_all(rooms)
    whole = chart.bounding_box()
    assert len(words) == 4 and whole is not None
    assert all(each["right"] <= whole["x"] + whole["width"] for each in words)
    for one, other in combinations(words, 2):
        apart = one["right"] < other["left"] or other["right"] < one["left"]
        assert apart or one["bottom"] < other["top"] or other["bottom"] < one["top"]
