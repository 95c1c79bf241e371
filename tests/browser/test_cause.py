"""Why two backends differ, asked on Compare: B is our engine with another prompt, and that is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser_driver import ROOT, Server, run_button, serve

pytestmark = pytest.mark.browser
RUN_MS = 300_000
"""Two cores shared with other work may be many times slower than two idle ones."""


@pytest.fixture(scope="module")
def server_with_roles(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app whose settings file names an engine that writes roles around the prompt, as chat servers do."""
    folder = tmp_path_factory.mktemp("cause")
    (folder / "settings.yaml").write_text(
        f"history: {folder / 'history'}\nbackends:\n  chat: {{spec: eager, infer: {{template: roles}}}}\n"
    )
    with serve(ROOT / "app.py", folder / "log", config=folder / "settings.yaml") as server:
        yield server


def test_the_button_finds_the_other_prompt(
    server_with_roles: Server, open_page: Callable[..., Page], screenshots: Path
) -> None:
    page = open_page(f"{server_with_roles.url}/?page=06-small-ticket&b=chat&preset=tiny")
    expect(page.get_by_role("button", name="Why?")).to_have_count(0)
    run_button(page).click()
    ask = page.get_by_role("button", name="Why?")
    ask.wait_for(timeout=RUN_MS)
    ask.click()
    expect(page.get_by_role("tab", name="Why")).to_have_attribute("aria-selected", "true")
    page.get_by_role("button", name="Try up to 60 settings on A").click()
    found = page.locator(".dsocr-strip", has_text="EXPLAINED")
    found.wait_for(timeout=RUN_MS)
    assert "B is reproduced exactly with role markers around the prompt" in found.inner_text()
    page.get_by_text(re.compile("What both sides used")).click()
    found.scroll_into_view_if_needed()
    page.screenshot(path=screenshots / "cause-found.png")
    assert page.locator(".stException").count() == 0
