"""Compare with a server as B, by its name in the settings file: one that waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import ROOT, Server, Viewer, run_button, serve
from tests.support.scripted_server import ScriptedServer, held, scripted_server

pytestmark = pytest.mark.browser
RUN_MS = 300_000
"""Two cores shared with other work may be many times slower than two idle ones."""


@pytest.fixture(scope="module")
def text_was_seen() -> threading.Event:
    """What the waiting server waits for before it ends its text."""
    return threading.Event()


@pytest.fixture(scope="module")
def waiting(text_was_seen: threading.Event) -> Iterator[ScriptedServer]:
    """A server that has sent its text and ends it when the test has seen it, however slow the page is."""
    with scripted_server(held(text_was_seen, RUN_MS / 1000)) as server:
        yield server


@pytest.fixture(scope="module")
def named(waiting: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app whose settings file names the server."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "settings.yaml").write_text(
        f"history: {folder / 'history'}\n"
        "backends:\n"
        f"  waiting: {{spec: 'endpoint:{waiting.address}', model: the-model}}\n"
    )
    with serve(ROOT / "app.py", folder / "log", config=folder / "settings.yaml") as server:
        yield server


def test_the_text_of_a_server_streams(named: Server, text_was_seen: threading.Event, open_page) -> None:
    page = open_page(named.url)
    Viewer(page).show("06-small-ticket")
    page.locator(".st-key-compare-b").get_by_role("combobox").click()
    page.get_by_role("option", name="waiting", exact=True).click()
    page.wait_for_url(re.compile(r"[?&]b=waiting"))
    page.get_by_role("button", name=re.compile("^A: eager")).click()  # B alone: its text is what streams
    run_button(page).click()
    panel = page.locator(".st-key-progress")
    expect(panel.locator("code")).to_contain_text("<|det|>", timeout=RUN_MS)
    expect(panel.locator(".dsocr-name")).to_have_text("B: waiting")
    text_was_seen.set()
    panel.wait_for(state="hidden", timeout=RUN_MS)
