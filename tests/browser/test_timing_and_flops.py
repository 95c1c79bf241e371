"""Timing by the mouse, from what became slower to its kernel; FLOPs, from the map to a stage."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.browser_driver import Server, inked, rested, serve_app
from tests.support.timed_history import paced, record, write

pytestmark = pytest.mark.browser
PROFILE = "20261123-230246-ncu-fast"
"""A decode step under Nsight Compute, of the runs that come along."""
HEAD, ROW = 31, 57
"""Pixels of a table's head and of a row of changes."""
CLICKS = 3


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app on what a gate leaves: three runs of each of two commits, decode 8 % slower, both profiled."""
    folder = tmp_path_factory.mktemp("tuned")
    root = folder / "history"
    with History(SEED_LOCATION) as seed:
        tables = seed.tables(PROFILE)
    for place, name in enumerate(("before", "after")):
        commit = {"git_commit": str(place + 1) * 40}
        for number in range(3):
            times = paced(9 * place + number, {"decode": 1.08} if place else {})
            write(root, record(f"{name}-{number}", 10 * place + number, **commit), times)
        with RunDirectory.create(root, record(f"{name}-ncu", 30 + place, profiled=True, **commit)) as run:
            for table, rows in tables.items():
                if table.startswith("kernel_"):
                    run.add_rows(table, rows)
    with serve_app(folder) as server:
        yield server


def table_of(page: Page, view: str) -> Locator:
    """The first table of a view, at rest."""
    table = rested(page).get_by_role("tabpanel", name=view).get_by_test_id("stDataFrame").first
    table.locator("canvas").first.wait_for()
    inked(table)  # its rows are drawn, so that a click finds one
    return table


def test_from_a_red_gate_to_a_kernel_in_three_clicks(tuned: Server, open_page) -> None:
    clicks = list[Locator]()

    def click(place: Locator, row: int | None = None) -> None:
        clicks.append(place)
        place.click(**({} if row is None else {"position": {"x": 20, "y": HEAD + ROW * (row + 0.5)}}))

    page = open_page(tuned.url, 1440, 1500)
    click(page.get_by_role("link", name="Timing"))
    page.get_by_text("1111111 → 2222222 on H200: fast on H200, gundam is confirmed 1.0").wait_for()
    click(table_of(page, "Changes"), row=1)  # decode, after the page as a whole
    expect(page.get_by_text("of A's time; 3 and 3 runs")).to_be_visible()
    click(page.get_by_role("button", name="Kernels of decode"))
    expect(page.get_by_text("12 kernels in both, 0 new in B, 0 gone")).to_be_visible()
    table_of(page, "Kernels")
    assert len(clicks) <= CLICKS and page.locator(".stException").count() == 0


# --- FLOPs: the map -------------------------------------------------------------------------------


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
