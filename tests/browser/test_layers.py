"""The tab Layers in a real browser: a fault is planted, the button finds it and says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser_driver import Server, serve
from tests.support.paths import APPS

pytestmark = pytest.mark.browser
PROGRESS = ".st-key-trace-progress"
TRACE_MS = 240_000
"""Two cores shared with other work may be many times slower than two idle ones."""


@pytest.fixture(scope="module")
def traced_server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("traced")
    (folder / "settings.yaml").write_text(f"history: {folder / 'history'}\n")
    script = APPS / "traced_app.py"
    with serve(script, folder / "log", config=folder / "settings.yaml") as server:
        yield server


def layers(page: Page) -> None:
    page.get_by_role("tab", name="Layers").click()


def test_the_button_names_the_block_of_a_planted_fault_and_draws_its_heat_map(
    traced_server: Server, open_page: Callable[..., Page], screenshots: Path
) -> None:
    page = open_page(f"{traced_server.url}/?page=06-small-ticket")
    layers(page)
    page.get_by_text("No trace of this page is recorded").wait_for()
    page.get_by_role("button", name="Find the first difference").click()
    page.locator(PROGRESS).wait_for()
    found = page.locator(".dsocr-strip", has_text="FIRST DEVIATION")
    found.wait_for(timeout=TRACE_MS)
    sentence = found.inner_text()
    assert "Equal up to CLIP block 1; its fc2 differs in" in sentence
    assert "other weights: model.vision_model.transformer.layers.1.mlp.fc2.weight" in sentence
    chart = page.locator(".js-plotly-plot", has_text="decode step")
    chart.locator(".heatmaplayer image, .heatmaplayer .hm").first.wait_for()
    expect(chart).to_contain_text("first: clip.block1 fc2")
    for block in ("sam.block0", "clip.block1", "decoder.layer5", "logits"):
        expect(chart).to_contain_text(block)
    chart.scroll_into_view_if_needed()
    page.screenshot(path=screenshots / "layers-light.png")

    page.get_by_text(re.compile("The outputs that differ")).click()
    page.locator("[data-testid=stDataFrame]").first.wait_for()

    # The summary is in the history: another tab shows it without running anything.
    again = open_page(f"{traced_server.url}/?page=06-small-ticket&tab=Layers", scheme="dark")
    kept = again.locator(".dsocr-strip", has_text="FIRST DEVIATION")
    kept.wait_for()
    expect(kept).to_contain_text("recorded 20")
    expect(kept).to_contain_text("CLIP block 1")
    dark = again.locator(".js-plotly-plot", has_text="decode step")
    dark.locator(".heatmaplayer image, .heatmaplayer .hm").first.wait_for()
    dark.scroll_into_view_if_needed()
    again.screenshot(path=screenshots / "layers-dark.png")
