"""The Runs page in a browser, on a made-up history: filters, choices, links, words of strangers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dsocr_core.history.store import History
from tests.support.browser_driver import Server, ink, serve
from tests.support.listed_runs import EAGER, FAST, HOSTILE, STRANGE, add
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


def test_filter_choose_and_link(runs_server: Server, open_page) -> None:
    page = settled(open_page(runs_server.url))
    page.get_by_text("5 runs, newest first").wait_for()
    page.get_by_test_id("stTextInputField").fill("page.png no such")
    page.get_by_test_id("stTextInputField").press("Enter")
    page.get_by_text("None of the 5 runs pass the filters.").wait_for()
    page.locator(".st-key-runs-clear-all button").click()
    page.get_by_text("5 runs, newest first").wait_for()
    page.locator(".st-key-runs-preset").get_by_role("combobox").click()
    page.get_by_role("option", name="small").click()
    page.get_by_text("3 runs of 5").wait_for()
    page.keyboard.press("Escape")
    # The first column's boxes choose runs; a table is drawn on a canvas.
    settled(page)
    for row, words in ((0, "1 run chosen"), (2, "2 runs chosen")):
        box = page.get_by_test_id("stDataFrame").first.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 18, box["y"] + 31 * (row + 1) + 15)
        page.get_by_text(words).wait_for()
    page.get_by_role("tab", name="Environment").click()
    page.get_by_text("values differ").wait_for()
    settled(page)
    assert f"runs={STRANGE}&runs={EAGER}" in page.url
    assert "preset=small" in page.url
    assert "tab=Environment" in page.url

    fresh = settled(open_page(page.url))
    fresh.get_by_text("2 runs chosen").wait_for()
    fresh.get_by_text("3 runs of 5").wait_for()
    # Each may still be drawing its last part: what they come to is the same.
    fresh.wait_for_function(
        "text => document.querySelector('[data-testid=stMain]').innerText === text",
        arg=page.evaluate("document.querySelector('[data-testid=stMain]').innerText"),
    )
    assert fresh.url == page.url
    fresh.get_by_role("button", name="Choose none").click()
    fresh.get_by_text("Choose runs in the first column").wait_for()
    fresh.wait_for_function("!location.search.includes('runs=')")


def test_the_trash_takes_and_gives_back(runs_server: Server, open_page) -> None:
    page = settled(open_page(f"{runs_server.url}/?runs={FAST}"))
    page.get_by_role("button", name="Move to trash").click()
    page.get_by_text("1 run moved to the trash.").wait_for()
    page.get_by_text("4 runs, newest first").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("1 run taken out of the trash.").wait_for()
    page.get_by_text("5 runs, newest first").wait_for()


def test_words_of_strangers_stay_words(runs_server: Server, open_page) -> None:
    page = open_page(f"{runs_server.url}/?runs={STRANGE}&tab=Tags and notes")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    settled(page)
    page.get_by_role("tab", name="Reproduce").click()
    page.get_by_text(HOSTILE[0]).filter(visible=True).first.wait_for()
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("a[href*='example.com']").count() == 0
    assert dialogs == []


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


def test_new_runs_are_announced_and_wait(runs_server: Server, folder: Path, open_page) -> None:
    page = settled(open_page(runs_server.url))
    with History(folder / "history") as other:
        add(other, "20261120-000000-eeeeeeee", "2026-11-20T00:00:00+00:00", pages=1)
    page.get_by_role("button", name="1 new run").wait_for()
    expect(page.get_by_text("5 runs, newest first")).to_be_visible()
    page.get_by_role("button", name="1 new run").click()
    page.get_by_text("6 runs, newest first").wait_for()
    page.get_by_role("button", name="Refresh").wait_for()


def test_the_tools_of_a_table_leave_the_menu_above_it_free(runs_server: Server, open_page) -> None:
    page = settled(open_page(runs_server.url))
    page.get_by_test_id("stDataFrame").first.hover()
    tools = page.get_by_test_id("stElementToolbar").first
    tools.wait_for()
    menu = page.locator(".st-key-menu-runs button").first
    above, below = menu.bounding_box(), tools.bounding_box()
    assert above is not None and below is not None
    assert above["y"] + above["height"] <= below["y"]
