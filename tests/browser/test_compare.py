"""The app as users start it, on the embedded checkpoint and the samples: read, come back by link, cancel."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import Server, Viewer, run_both, run_button
from tests.support.fabricated_results import CANCELLED

pytestmark = pytest.mark.browser


def test_a_page_read_by_both_backends_comes_back_by_its_link(server: Server, open_page) -> None:
    page = open_page(server.url)
    viewer = Viewer(page).show("06-small-ticket")
    viewer.root.evaluate("viewer => viewer.dataset.first = true")
    run_both(page)
    expect(page.locator(".dsocr-word")).to_have_text("= IDENTICAL")
    assert page.locator(".stAlert").count() == 0
    state = viewer.state()
    assert int(state["a"]) >= 3 and state["a"] == state["b"] and viewer.drawn("a") > 500
    scale = viewer.zoom("a", 1)
    viewer.click("a", 1)
    viewer.wait(selected="1")
    names = viewer.root.locator(".texts header b").all_inner_texts()
    assert names == ["A: eager, ours", "B: vendor, published code"]
    run_both(page)  # a rerun of everything, the whole page included
    assert "first" in viewer.state()  # it was never another one in its place
    viewer.wait(selected="1")
    assert float(viewer.state()["scale"]) == scale
    again = open_page(f"{server.url}/?page=06-small-ticket&mode=2-up&box=1&tab=Details")
    Viewer(again).wait(mode="2-up", selected="0")
    expect(again.locator(".dsocr-strip")).to_contain_text("recorded")
    expect(again.get_by_role("button", name="Run again")).to_be_enabled()


def test_a_run_shows_its_stages_and_ends_at_cancel_and_with_its_tab(
    fabricated_server: Server, open_page
) -> None:
    page = open_page(f"{fabricated_server.url}/?page=slide_wide&preset=base")
    viewer = Viewer(page).wait(image="slide_wide:1500x700", a="0")
    expect(viewer.root).to_contain_text("Neither side has read this page yet.")
    panel = page.locator(".st-key-progress")
    for cancelled in (1, 2):
        run_button(page).click()
        panel.get_by_text("prefill").first.wait_for()
        panel.get_by_text("<|ref|>").first.wait_for()
        expect(run_button(page)).to_be_disabled()
        if cancelled == 1:
            page.get_by_role("button", name="Cancel").click()
            panel.wait_for(state="hidden")
        else:
            page.close()
        ends = time.monotonic() + 30
        while fabricated_server.log.read_text("utf-8", "replace").count(CANCELLED) < cancelled:
            assert time.monotonic() < ends, "the run goes on"
            time.sleep(0.02)
