"""The FLOPs page in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import Server

pytestmark = pytest.mark.browser


def test_a_click_on_the_map_opens_its_run_and_stage(server: Server, open_page) -> None:
    """The first visit shows the sentence and the map; the link holds what was clicked."""
    page = open_page(f"{server.url}/flops")
    page.get_by_text("FLOPs of 34 of 34 runs are exact.").wait_for()
    overview, stages = (page.get_by_test_id("stDataFrame").nth(at) for at in (0, 1))
    overview.locator("canvas").first.wait_for()
    stages.locator("canvas").first.wait_for()
    # The first row of the second run: rows are 35 pixels high, the stage is 150 wide and a run 100.
    overview.locator(".dvn-scroller").click(position={"x": 150 + 150, "y": 35 + 17})
    page.wait_for_url(re.compile(r"run=20261128-131547-10db5e38.*stage=sam"))
    expect(page.get_by_text("FLOPs of 34 of 34 runs are exact.")).to_contain_text("stages take 393 ms")
    page.get_by_text("25c101e · 2026-11-28 13:15").wait_for()
    assert page.locator(".js-plotly-plot").count() == 0  # drawn where it is asked for
    page.get_by_text("Roofline", exact=True).click()
    page.locator(".js-plotly-plot .point").first.wait_for()
    assert page.locator(".stAlert").count() == 0
