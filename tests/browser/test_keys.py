"""Keys on Compare: each counts, however fast they come and whatever the server is at."""

from __future__ import annotations

from datetime import datetime

import pytest
from playwright.sync_api import expect

from tests.support.browser_driver import Server, Viewer

pytestmark = pytest.mark.browser
BURST = """keys => {
    const how = {bubbles: true, composed: true};
    for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, ...how}));
}"""


def test_every_turn_of_a_burst_of_keys_counts(fabricated_server: Server, open_page) -> None:
    page = open_page(f"{fabricated_server.url}/?page=invoice")
    Viewer(page).root.and_(page.locator('[data-image^="invoice:"]')).wait_for()
    names = page.locator(".gallery button").evaluate_all("all => all.map((each) => each.dataset.key)")
    start = names.index("invoice")
    page.evaluate(BURST, ["j", "j", "j"])
    page.locator(f'.viewer[data-image^="{names[(start + 3) % len(names)]}:"]').wait_for()
    page.evaluate(BURST, ["k", "b", "k"])
    page.locator(f'.viewer[data-image^="{names[(start + 1) % len(names)]}:"]').wait_for()


def test_a_key_that_comes_while_there_is_no_viewer_waits_for_the_next_one(
    fabricated_server: Server, open_page
) -> None:
    page = open_page(f"{fabricated_server.url}/?page=invoice")
    viewer = page.locator('.viewer[data-image^="invoice:"]')
    viewer.wait_for()
    names = page.locator(".gallery button").evaluate_all("all => all.map((each) => each.dataset.key)")
    page.clock.set_fixed_time(datetime.now())  # a key waits for two seconds, which a busy server may take
    page.get_by_text("Path", exact=True).click()
    expect(viewer).to_have_count(0)
    page.evaluate(BURST, ["j"])
    page.get_by_text("Sample", exact=True).click()
    following = names[(names.index("invoice") + 1) % len(names)]
    page.locator(f'.viewer[data-image^="{following}:"]').wait_for()
