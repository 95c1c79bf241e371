"""The Runs page in a browser, on a made-up history: filters, choices, links, words of strangers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser_driver import Server, ink, serve
from tests.support.listed_runs import EAGER, FAST, STRANGE
from tests.support.paths import APPS

pytestmark = pytest.mark.browser
SHOWN = {
    "environment": "values differ",
    "notes": "noted since, the last one counts",
    "reproduce": "python -m dsocr_core run",
    "import": "Run directories of llm-perf-opt",
}
"""What each picture says."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs_server(folder: Path, browser: Browser) -> Iterator[Server]:
    with serve(APPS / "runs_app.py", folder / "log", str(folder / "history")) as server:
        yield server


def settled(page: Page) -> Page:
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    return page


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        pytest.param(800, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(800, "light", marks=pytest.mark.slow),
    ],
)
def test_every_tab_opens_by_its_link_in_every_size_and_scheme(
    runs_server: Server, open_page, screenshots: Path, width: int, scheme: str
) -> None:
    links = {
        "environment": f"?runs={EAGER}&runs={FAST}&tab=Environment",
        "notes": f"?runs={STRANGE}&tab=Tags and notes",
    }
    if (width, scheme) == (1280, "light"):
        links |= {"reproduce": f"?runs={EAGER}&runs={FAST}&tab=Reproduce", "import": "?view=Import"}
    page = open_page(runs_server.url, width, 900, scheme)
    for name, link in links.items():
        page.goto(f"{runs_server.url}/{link}")
        page.get_by_role("button", name="Refresh").wait_for()
        page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
        if name != "import":
            settled(page)
        page.locator("[data-testid=stMain]").get_by_text(SHOWN[name]).first.wait_for()
        assert page.locator(".stAlert").count() == 0
        page.screenshot(path=screenshots / f"runs-{width}-{scheme}-{name}.png")
        assert ink(page.get_by_test_id("stMain")) > 0.01, name


def test_the_tools_of_a_table_leave_the_menu_above_it_free(runs_server: Server, open_page) -> None:
    page = settled(open_page(runs_server.url))
    page.get_by_test_id("stDataFrame").first.hover()
    tools = page.get_by_test_id("stElementToolbar").first
    tools.wait_for()
    menu = page.locator(".st-key-menu-runs button").first
    above, below = menu.bounding_box(), tools.bounding_box()
    assert above is not None and below is not None
    assert above["y"] + above["height"] <= below["y"]
