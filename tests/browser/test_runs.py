"""Runs as the browser sees them, on made-up backends: stages, text, cancel, waiting, errors."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import Server, Viewer, ink, run_button

pytestmark = pytest.mark.browser
HEADERS = {"2-up": "A: eager, ours", "swipe": "A | B", "overlay": "A + B", "difference": "A \u2212 B"}
SHOWN = {
    "Text": "B: vendor, published code",
    "Boxes": "boxes paired",
    "Tokens": "Tokens diverge at step",
    "Inputs": "Everything that decides is equal.",
    "Timings": "One run of each backend (n = 1)",
    "Files": "Download all (zip)",
}
"""What each tab says on its picture."""


def test_stages_and_text_appear_while_a_run_is_on_and_cancel_ends_it(
    fabricated_server: Server, open_page
) -> None:
    page = open_page(f"{fabricated_server.url}/?page=slide_wide&preset=base")
    viewer = Viewer(page).wait(image="slide_wide:1500x700", a="0")
    expect(viewer.root).to_contain_text("Neither side has read this page yet.")
    run_button(page).click()
    panel = page.locator(".st-key-progress")
    panel.get_by_text("prefill").first.wait_for()
    panel.get_by_text("<|ref|>").first.wait_for()
    expect(run_button(page)).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    panel.wait_for(state="hidden")
    expect(run_button(page)).to_be_enabled()


def test_every_mode_and_tab_is_drawn_in_the_dark_too(fabricated_server: Server, open_page) -> None:
    page = open_page(f"{fabricated_server.url}/?page=letter_tall&box=3", 1920, 1080, "dark")
    viewer = Viewer(page).wait(image="letter_tall:700x1600", selected="2")
    for mode, key in (("2-up", "1"), ("swipe", "2"), ("overlay", "3"), ("difference", "4")):
        page.keyboard.press(key)
        viewer.wait(mode=mode)
        expect(viewer.root.locator(".pane header b").first).to_have_text(HEADERS[mode])
        assert viewer.drawn("a") > 500
        assert ink(viewer.root) > 0.05, mode
    for tab in SHOWN:
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator('[role="tab"][aria-selected="true"]', has_text=tab).wait_for()
        if tab == "Timings":
            page.locator(".stTabs .dsocr-bars-track i").first.wait_for()
        if tab in ("Boxes", "Tokens", "Inputs"):
            page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
        page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
        page.locator(".stTabs").scroll_into_view_if_needed()
        page.locator(".stTabs").get_by_text(SHOWN[tab]).first.wait_for()
        assert ink(page.get_by_role("tabpanel").filter(visible=True).first) > 0.005, tab
    expect(page.locator(".dsocr-word.dsocr-differs")).to_have_text("≠ DIFFERS")
    assert page.locator(".stAlert").count() == 0
