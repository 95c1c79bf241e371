"""The app under a prefix, behind proxies that strip it or not and keep the Host or not: all pictures come."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser_driver import ROOT, serve
from tests.support.prefix_proxy import PREFIX, forward, listening

pytestmark = pytest.mark.browser


def pictures_come(page: Page) -> None:
    """Fails on the first picture that the server has not."""
    for images in (page.locator(".viewer .pane img"), page.locator(".gallery.samples img")):
        for image in images.all():
            image.evaluate("image => image.decode()")


@pytest.mark.parametrize(("strips", "keeps_host"), [(False, True), (True, False)])
def test_pictures_and_links_of_compare_and_review_have_the_prefix(
    strips: bool, keeps_host: bool, tmp_path: Path, browser: Browser, open_page
) -> None:
    (tmp_path / "settings.yaml").write_text(f"history: {tmp_path / 'history'}\n")
    with listening() as proxy:
        origin = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        options = [] if strips else ["--server.baseUrlPath", PREFIX.strip("/")]
        if not keeps_host:
            options += ["--server.corsAllowedOrigins", origin]
        base = "" if strips else PREFIX
        config = tmp_path / "settings.yaml"
        with serve(ROOT / "app.py", tmp_path / "log", config=config, options=options, base=base) as server:
            forward(proxy, int(server.url.rpartition(":")[2].partition("/")[0]), strips, keeps_host)
            page = open_page(f"{origin}{PREFIX}/")
            page.locator(".viewer .pane img").first.wait_for(state="attached")
            pictures_come(page)
            page.locator('.gallery button[data-key="01-letter"]').click()
            page.locator('.viewer[data-image^="01-letter:"]').wait_for()
            pictures_come(page)
            page.wait_for_url(f"{origin}{PREFIX}/?*page=01-letter*")
            again = open_page(page.url)
            again.locator('.viewer[data-image^="01-letter:"]').wait_for()
            page.get_by_test_id("stSidebarNavLink").filter(has_text="Review").click()
            page.locator('.queue button[aria-selected="true"]').wait_for()
            pictures_come(page)
            page.wait_for_url(f"{origin}{PREFIX}/review?*")
