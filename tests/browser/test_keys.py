"""Keys on Compare: each counts, however fast they come and whatever the server is at."""

from __future__ import annotations

import pytest

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
