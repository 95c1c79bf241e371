"""Every view on the runs that come along, at three widths, light and dark: nothing overflows.

In each, axe-core finds nothing serious; the pictures are for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser_driver import WATCH, Server, inked, serve_app, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WIDTHS = (390, 1024, 1440)
MAIN, CHART = "[data-testid=stMain]", ".js-plotly-plot"
FAST, EAGER, CPU = "20261128-190606-4c84d7d5", "20261123-124256-62567dcf", "20261123-233133-fcdfed67"
"""The newest run of the fast engine on a GPU, of the eager engine there, and of a CPU."""
EXAMPLE = "/?page=03-tall-notice&preset=base&dtype=bfloat16&dtype_b=float32&box=6&tab="
REVIEW, KERNELS = "/review?page=03-tall-notice.png&tab=", "/timing?view=Kernels"
VIEWS = {
    "compare": ("/", "B is right."),
    "compare-cause": (f"{EXAMPLE}Cause", "the number types differ"),
    "compare-details": (f"{EXAMPLE}Details", "✓ equal, ✗ differs"),
    "review": ("/review", "One cause: the n-gram rule differs"),
    "review-differences": (f"{REVIEW}Differences", "of 6 blocks differ"),
    "review-cause": (f"{REVIEW}Cause", "n-gram"),
    "review-details": (f"{REVIEW}Details", "one run of each side"),
    "timing-changes": ("/timing", "no confirmed slowdown"),
    "timing-pair": (f"/timing?b={FAST}", "Inconclusive"),
    "timing-stages": ("/timing?series=fast+%C3%97256+on+H200", "split off prefill"),
    "timing-kernels-of-two": (
        f"{KERNELS}&run=20261123-232244-ncu-fast-ops&against=20261123-230246-ncu-fast", "8 kernels in both"
    ),
    "timing-kernels": (KERNELS, "each profiled alone"),
    "runs": ("/runs", "in 17 groups"),
    "runs-two": (f"/runs?runs={FAST}&runs={CPU}", "values differ, as used"),
    "flops": ("/flops", "runs are exact"),
    "flops-gaps": (f"/flops?reading=FLOP+gap&run={EAGER}&stage=sam", "no colour where equal"),
    "flops-what-if": ("/flops?view=What+if", "new tokens"),
}  # fmt: skip
"""Of each view its address and words on it."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app with the examples alone."""
    with serve_app(tmp_path_factory.mktemp("pictures")) as server:
        yield server


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_the_examples(app: Server, open_page, screenshots: Path, name: str, accessible) -> None:
    address, words = VIEWS[name]
    page: Page = open_page("about:blank")
    page.add_init_script(WATCH)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 1700})
            # By its link: a chart that is there already takes on another scheme when it likes.
            page.goto(app.url + address)
            settled(page)
            expect(page.locator(MAIN)).to_contain_text(words)
            assert page.locator(".stException").count() == 0
            for chart in page.locator(CHART).all():
                inked(chart)
            accessible(page)
            page.screenshot(path=screenshots / f"view-{name}-{width}-{scheme}.png")
            overflow = page.locator(MAIN).evaluate("root => root.scrollWidth - root.clientWidth")
            assert overflow <= 1, f"wider than {width} px"
