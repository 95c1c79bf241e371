"""The Runs page in a browser: its table, and the live one of a run over a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import listed_runs
from tests.support.browser_driver import Server, ink, serve
from tests.support.made_up_output import SHARDS, MadeUpOutput
from tests.support.paths import APPS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def runs_server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("runs")
    listed_runs.make(folder / "history").close()
    with serve(APPS / "history_app.py", folder / "log", "runs", str(folder / "history")) as server:
        yield server


def link(server: Server, folder: Path) -> str:
    return f"{server.url}/?view=Cluster&output={quote(str(folder))}"


def drawn(page: Page) -> None:
    page.get_by_test_id("stDataFrame").locator("canvas").nth(1).wait_for()


def test_the_table_follows_the_run(runs_server: Server, tmp_path: Path, open_page) -> None:
    made = MadeUpOutput(tmp_path)
    made.commit(4)
    page = open_page(link(runs_server, tmp_path))
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.get_by_text("200 of 2,000 pages").wait_for()
    made.commit(16)
    page.get_by_text("1,000 of 2,000 pages").wait_for()
    page.get_by_text("stragglers: slow").wait_for()
    page.get_by_text("40 pages failed or quarantined, by cause").wait_for()
    drawn(page)
    assert ink(page.get_by_test_id("stDataFrame").first) > 0.01
    made.commit(SHARDS - 20)
    page.get_by_text("2,000 of 2,000 pages, complete").wait_for()
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("a[href*='example.com']").count() == 0
    assert dialogs == []
    # Nothing is asked for any more: what says when the output was looked at stays.
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    assert "view=Cluster" in page.url and "output=" in page.url


def test_the_tools_of_a_table_leave_the_menu_above_it_free(runs_server: Server, open_page) -> None:
    page = open_page(runs_server.url)
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    page.get_by_test_id("stDataFrame").first.hover()
    tools = page.get_by_test_id("stElementToolbar").first
    tools.wait_for()
    menu = page.locator(".st-key-menu-runs button").first
    above, below = menu.bounding_box(), tools.bounding_box()
    assert above is not None and below is not None
    assert above["y"] + above["height"] <= below["y"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_button_that_waits_for_files_can_be_read(runs_server: Server, open_page, scheme: str) -> None:
    page = open_page(f"{runs_server.url}/?view=Import", scheme=scheme)
    button = page.get_by_role("button", name="Import", exact=True)
    expect(button).to_be_disabled()
    assert ink(button.get_by_test_id("stMarkdownContainer")) > 0.04


def test_sixty_rows_are_on_a_screen(server: Server, open_page) -> None:
    page = open_page(f"{server.url}/runs", width=1440)
    table = page.get_by_test_id("stDataFrame").first
    table.locator("canvas").first.wait_for()
    # Thirteen pixels a row under a head of 33, all of it on the screen without scrolling.
    expect(page.locator(".st-key-runs-list")).to_be_visible()
    box = table.bounding_box()
    assert box is not None and box["y"] + box["height"] <= 900 and (box["height"] - 33) // 13 >= 60
    scrolled = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    assert scrolled <= 900
