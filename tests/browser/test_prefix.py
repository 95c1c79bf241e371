"""The app under a prefix, behind proxies that strip it or not and keep the Host or not: all pictures come."""

from __future__ import annotations

from collections.abc import Iterator
from socket import socket

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser_driver import Viewer, serve_app
from tests.support.prefix_proxy import PREFIX, forward, listening

pytestmark = pytest.mark.browser


def pictures_come(page: Page) -> None:
    """Fails on the first picture that the server has not."""
    for images in (page.locator(".viewer .pane img"), page.locator(".gallery img")):
        for image in images.all():
            image.evaluate("image => image.decode()")


def origin_of(proxy: socket) -> str:
    return f"http://127.0.0.1:{proxy.getsockname()[1]}"


@pytest.fixture(scope="module", params=[True, False], ids=["prefix stripped", "prefix kept"])
def origins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> Iterator[dict[bool, str]]:
    """Origins of two proxies before one app: of one that keeps the Host, and of one that changes it."""
    strips = request.param
    folder = tmp_path_factory.mktemp("prefix")
    with listening() as keeping, listening() as changing:
        # Only where the Host is changed does the app have to know the proxy's origin.
        options = ["--server.corsAllowedOrigins", origin_of(changing)]
        options += [] if strips else ["--server.baseUrlPath", PREFIX.strip("/")]
        with serve_app(folder, options=options, base="" if strips else PREFIX) as server:
            port = int(server.url.rpartition(":")[2].partition("/")[0])
            forward(keeping, port, strips, keeps_host=True)
            forward(changing, port, strips, keeps_host=False)
            yield {True: origin_of(keeping), False: origin_of(changing)}


@pytest.mark.parametrize("keeps_host", [True, False])
def test_pictures_and_links_of_compare_and_review_have_the_prefix(
    origins: dict[bool, str], keeps_host: bool, open_page
) -> None:
    origin = origins[keeps_host]
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
