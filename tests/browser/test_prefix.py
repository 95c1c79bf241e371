"""The app behind a proxy that serves it under a prefix of which the app knows nothing: all pictures come."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.browser_driver import Viewer, serve_app
from tests.support.prefix_proxy import PREFIX, forward

pytestmark = pytest.mark.browser


def pictures_come(page: Page) -> None:
    """Fails on the first picture that the server has not."""
    for image in page.locator(".viewer .pane img, .gallery img").all():
        image.evaluate("image => image.decode()")


def test_pictures_and_links_of_compare_and_review_have_the_prefix(tmp_path: Path, open_page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        origin = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        # The proxy changes the Host, so the app has to know its origin.
        with serve_app(tmp_path, options=["--server.corsAllowedOrigins", origin]) as server:
            forward(proxy, int(server.url.rpartition(":")[2]))
            page = open_page(f"{origin}{PREFIX}/")
            page.locator(".viewer .pane img").first.wait_for(state="attached")
            pictures_come(page)
            Viewer(page).show("01-letter")
            pictures_come(page)
            page.wait_for_url(f"{origin}{PREFIX}/?*page=01-letter*")
            again = open_page(page.url)
            again.locator('.viewer[data-image^="01-letter:"]').wait_for()
            page.get_by_test_id("stSidebarNavLink").filter(has_text="Review").click()
            page.locator(".gallery img").first.wait_for()
            pictures_come(page)
            page.locator(".gallery button").first.click()
            page.wait_for_url(f"{origin}{PREFIX}/review?*page=*")
