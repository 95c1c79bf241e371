"""A part of a page that is drawn again alone: what is chosen in it does not run the rest of the script."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser_driver import ROOT, serve

pytestmark = pytest.mark.browser
APP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import streamlit as st
from dsocr_core.base.errors import DsocrError
from pages.widgets.shared.url_state import part

state = st.session_state
state["whole"] = state.get("whole", 0) + 1

def read():
    state["read"] = state.get("read", 0) + 1

def draw():
    tabs = st.tabs(["One", "Two"], key="view", on_change="rerun")
    state["part"] = state.get("part", 0) + 1
    st.write(f"whole {{state['whole']}}, part {{state['part']}}, read {{state['read']}}")
    if tabs[1].open:
        raise DsocrError("runs/1: gone; refresh")

def write():
    st.query_params["view"] = state["view"]

part(read, draw, write)
"""


def test_a_tab_runs_its_part_alone_with_its_address_and_its_errors(
    browser: Browser, open_page, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    with serve(tmp_path / "app.py", tmp_path / "log") as server:
        page = open_page(server.url)
        page.get_by_text("whole 1, part 1, read 1").wait_for()
        page.get_by_role("tab", name="Two").click()
        page.get_by_text("whole 1, part 2, read 2").wait_for()
        page.wait_for_url("**view=Two**")
        expect(page.locator(".stAlert")).to_contain_text("runs/1: gone; refresh")
