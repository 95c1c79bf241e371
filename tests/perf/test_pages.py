"""Timing the pages of an app in a browser."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

APP = """
import streamlit as st

def first():
    st.write("first page")

def second():
    st.title("second page")
    left, right = st.tabs(["Left", "Right"])
    left.write("on the left")
    right.write("on the right")

st.navigation([
    st.Page(first, title="First", default=True), st.Page(second, title="Second", url_path="second")
]).run()
"""


@pytest.mark.browser
def test_every_page_and_tab_is_timed(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    from tests.perf.pages import LOAD_MS, Asked, measure
    from tests.support.browser_driver import serve
    from tests.support.browsers import CHROMIUM_ARGUMENTS, find_chromium

    if find_chromium() is None:
        pytest.skip("no Chromium on this machine")
    (tmp_path / "app.py").write_text(APP)

    def timed() -> list[Asked]:
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(
                executable_path=find_chromium(), args=[*CHROMIUM_ARGUMENTS]
            ) as chromium,
            serve(tmp_path / "app.py", tmp_path / "log") as server,
        ):
            return list(measure(chromium, server.url, server.pid, 2))

    # A thread has no event loop of another test's browser, and Playwright wants to have its own.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(timed).result()
    assert [(asked.page, asked.what, len(asked.again)) for asked in found] == [
        ("First", "load", 2), ("Second", "load", 2), ("Second", "tab Right", 2), ("Second", "tab Left", 2),
    ]  # fmt: skip
    for times in (times for asked in found for times in (asked.first, *asked.again)):
        assert times.get("content", 1) > 0 and 0 < times["settled"] < LOAD_MS
        assert times["browser_cpu"] > 0 and times["server_cpu"] >= 0
    assert all(asked.first["content"] <= asked.first["settled"] for asked in found if asked.what == "load")
    assert Asked("A", "load", {"settled": 9}, [{"settled": each} for each in (3, 1, 2)]).median() == {
        "settled": 2
    }
