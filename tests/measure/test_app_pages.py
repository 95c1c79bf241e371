"""Timing the pages of an app in a browser: what is reported, and the error where it cannot be done."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from dsocr_core.cli.main import main
from dsocr_core.console import BAD_USAGE
from dsocr_core.errors import DsocrError
from dsocr_core.measure.app_answers import Answer, ask_pages
from dsocr_core.measure.app_pages import AppLoads, Load, PageLoads, load_pages
from dsocr_core.measure.served_app import LOAD_MS, opened_browser, served_app
from tests.support.browsers import find_chromium

APP = """
import streamlit as st

def first():
    st.write("first page")

def second():
    st.title("second page")
    left, right = st.tabs(["Left", "Right"])
    left.write("on the left")
    right.write("on the right")
    st.image({picture!r})

st.navigation([
    st.Page(first, title="First", default=True), st.Page(second, title="Second", url_path="second")
]).run()
"""


def test_medians_and_ranges_leave_the_first_load_out() -> None:
    loads = tuple(Load(first, settled, 50, 60) for first, settled in ((100, 900), (300, 500), (200, 700)))
    found = AppLoads(1.5, (PageLoads("Runs", "/runs", Load(4000, 5000), loads),))
    assert found.pages[0].median() == Load(200, 700, 50, 60)
    (row,) = json.loads(json.dumps(found.document()))["pages"]
    assert (row["first"]["settled_ms"], row["median"]["settled_ms"]) == (5000, 700)
    console = Console(width=120)
    with console.capture() as shown:
        found.print(console)
    line = shown.get().splitlines()[-2]
    assert line.split() == ["Runs", "4000", "5000", "200", "100-300", "700", "500-900", "50", "60"]


@pytest.mark.browser
def test_every_page_of_the_navigation_is_timed(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    browser = find_chromium()
    if browser is None:
        pytest.skip("no Chromium on this machine")
    from PIL import Image

    Image.new("RGB", (40, 30), "red").save(tmp_path / "picture.png")
    (tmp_path / "app.py").write_text(APP.format(picture=str(tmp_path / "picture.png")))

    def timed() -> tuple[list[PageLoads], list[Answer], float]:
        with opened_browser(browser) as chromium, served_app(tmp_path / "app.py") as (url, started_s, pid):
            pages = list(load_pages(chromium, url, 2, pid))
            return (
                pages,
                list(ask_pages(chromium, url, [("First", "/"), ("Second", "/second")], 2, pid)),
                started_s,
            )

    # A thread has no event loop of another test's browser, and Playwright wants to have its own.
    with ThreadPoolExecutor(1) as thread:
        pages, answers, started_s = thread.submit(timed).result()
    assert started_s > 0
    assert [(page.name, page.path, len(page.loads)) for page in pages] == [
        ("First", "/", 2), ("Second", "/second", 2),
    ]  # fmt: skip
    for page in pages:
        for load in (page.first, *page.loads):
            assert 0 < load.first_content_ms <= load.settled_ms
            assert load.server_cpu_ms is not None and load.server_cpu_ms >= 0
            assert load.browser_cpu_ms is not None and load.browser_cpu_ms > 0
    assert [(answer.page, answer.asked, len(answer.again_ms)) for answer in answers] == [
        ("Second", "tab Right", 2), ("Second", "tab Left", 2),
    ]  # fmt: skip
    assert all(answer.browser_cpu_ms for answer in answers)
    assert all(answer.server_cpu_ms is not None for answer in answers)
    assert all(0 < time < LOAD_MS for answer in answers for time in (answer.first_ms, *answer.again_ms))


def test_an_app_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    wanted = r"none\.py: the app did not start: .*does not exist"
    with pytest.raises(DsocrError, match=wanted), served_app(tmp_path / "none.py"):
        pytest.fail("it started")


def test_without_playwright_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    assert main(["measure", "pages", "--json"]) == BAD_USAGE
    assert "pip install -r requirements-dev.txt" in " ".join(capsys.readouterr().err.split())


def test_an_answer_shows_its_first_time_by_itself() -> None:
    found = AppLoads(1.5, (), (Answer("Timing", "tab Trend", 900, (300, 100, 200), 40, None),), 1000)
    assert found.answers[0].median_ms == 200
    assert found.document()["made_up_runs"] == 1000
    console = Console(width=120)
    with console.capture() as shown:
        found.print(console)
    assert shown.get().splitlines()[-2].split() == ["Timing", "tab", "Trend", "900", "200", "300", "40", "-"]
    assert "1,000 made-up runs" in shown.get()
