"""Pages opened by their address."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import Server

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", ["review", "flops"])
def test_a_page_opened_by_its_address_asks_for_nothing_that_is_not_there(
    server: Server, open_page, name: str
) -> None:
    page = open_page("about:blank")
    failed: list[str] = []
    said: list[str] = []
    page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto(f"{server.url}/{name}")
    page.locator(".dsocr-heading h1").wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    assert not failed and not said
    expect(page.get_by_test_id("stSidebarNavLink")).to_have_count(5)
