"""The app as users start it, on the embedded checkpoint and the samples."""

from __future__ import annotations

import os
import signal
import time

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser_driver import ROOT, Server, Viewer, child_processes, run_button

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (ROOT / "data" / "mini" / "model.safetensors.index.json").exists(),
        reason="no embedded checkpoint yet",
    ),
]
RUN_MS = 180_000
"""Two cores shared with other work may be many times slower than two idle ones."""
WORKER = "dsocr_core.vendor.worker"


def run_both(page: Page) -> None:
    run_button(page).click()
    page.locator(".st-key-progress").wait_for()
    page.locator(".st-key-progress").wait_for(state="hidden", timeout=RUN_MS)


def verdict(page: Page) -> str:
    word = page.locator(".dsocr-word")
    expect(word).to_have_count(1)  # while a page is drawn anew the last answer may still stand there
    return word.inner_text()


def test_a_page_read_by_both_backends_comes_back_by_its_link(server: Server, open_page, screenshots) -> None:
    page = open_page(server.url)
    viewer = Viewer(page).show("06-small-ticket")
    run_both(page)
    assert verdict(page) == "= IDENTICAL"
    assert page.locator(".stAlert").count() == 0

    state = viewer.state()
    assert int(state["a"]) >= 3
    assert state["a"] == state["b"]
    assert viewer.drawn("a") > 500

    scale = viewer.zoom("a", 1)
    viewer.click("a", 1)
    viewer.wait(selected="1")
    names = viewer.root.locator(".texts header b").all_inner_texts()
    assert names == ["A: eager, ours", "B: vendor, published code"]
    run_both(page)  # a rerun of everything, the whole page included
    viewer.wait(selected="1")
    assert float(viewer.state()["scale"]) == scale
    page.screenshot(path=screenshots / "compare-selected.png")

    again = open_page(f"{server.url}/?page=06-small-ticket&mode=2-up&box=1&tab=Details")
    Viewer(again).wait(mode="2-up", selected="0")
    expect(again.locator(".dsocr-strip")).to_contain_text("recorded")
    expect(again.get_by_role("button", name="Run again")).to_be_enabled()


def test_a_killed_worker_is_an_error_on_the_page_and_the_next_run_works(
    server: Server, open_page, screenshots
) -> None:
    page = open_page(f"{server.url}/?page=09-report-picture")
    viewer = Viewer(page)
    page.locator('.viewer[data-image^="09-report-picture:"]').wait_for()
    run_button(page).click()
    backend = page.locator(".dsocr-backend", has_text="B: vendor")
    backend.get_by_text("prefill").wait_for(timeout=RUN_MS)  # the worker is at work
    workers = child_processes(server.pid, WORKER)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    error = page.locator(".stAlert p", has_text="B: vendor")
    error.wait_for(timeout=RUN_MS)
    assert "SIGKILL" in error.inner_text()
    assert "\n" not in error.inner_text().strip()
    page.screenshot(path=screenshots / "compare-worker-killed.png")
    run_both(page)
    assert verdict(page) == "= IDENTICAL"
    assert page.locator(".stAlert").count() == 0
    assert int(viewer.state()["b"]) >= 3


def test_a_second_tab_waits_its_turn_and_says_for_whom(server: Server, open_page, screenshots) -> None:
    first, second = (open_page(f"{server.url}/?page={name}") for name in ("09-report-picture", "01-letter"))
    for page in (first, second):
        page.locator(".viewer[data-image]").wait_for()
    run_button(first).click()
    first.locator(".st-key-progress").get_by_text("decode").first.wait_for(timeout=RUN_MS)
    run_button(second).click()
    second.get_by_text("aiting for").first.wait_for()
    expect(second.locator(".dsocr-headline")).to_contain_text("09-report-picture")
    second.screenshot(path=screenshots / "compare-waiting.png")
    began = time.monotonic()
    second.get_by_role("button", name="Cancel").click()
    second.locator(".st-key-progress").wait_for(state="hidden")
    print(f"cancelled after {time.monotonic() - began:.2f} s")
    first.locator(".st-key-progress").wait_for(state="hidden", timeout=RUN_MS)
    assert verdict(first) == "= IDENTICAL"


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
