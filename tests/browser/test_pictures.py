"""Pictures of every view on the runs that come along, at two widths, light and dark: nothing overflows.

In each, axe-core finds nothing serious.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from dsocr_core.runs.history import SEED_LOCATION, History
from tests.support.browser_driver import ROOT, Server, Viewer, inked, run_button, serve
from tests.support.browsers import QUIET_MS, SETTLED, WATCH
from tests.support.scripted_server import ScriptedServer, scripted_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUN_MS = 300_000
"""Two cores shared with other work may be many times slower than two idle ones."""
HEIGHTS = {1280: 800, 1680: 1050}
TALL = 1700
"""Pixels of a view whose second half matters as much."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MAIN, CHART = "[data-testid=stMain]", ".dsocr-bars, .js-plotly-plot"
EXAMPLE = "/?page=03-tall-notice&preset=base&dtype=bfloat16&dtype_b=float32&box=6&tab="
VIEWS = {
    "compare": ("/", "B is right."),
    **{f"compare-{tab.lower()}": (f"{EXAMPLE}{tab}", words) for tab, words in {
        "Cause": "the number types differ", "Details": "✓ equal, ✗ differs"}.items()},
    "review": ("/review", "One cause: the n-gram rule differs"),
    **{f"review-{tab.lower()}": (f"/review?page=03-tall-notice.png&tab={tab}", words) for tab, words in {
        "Differences": "of 6 blocks differ", "Cause": "n-gram", "Details": "one run of each side"}.items()},
    "timing-changes": ("/timing", "no confirmed slowdown"),
    "timing-pair": ("/timing?b={fast}", "Inconclusive"),
    "timing-stages": ("/timing?series=fast+%C3%97256+on+H200", "split off prefill"),
    "timing-kernels-of-two": (
        "/timing?view=Kernels&run=20261123-232244-ncu-fast-ops&against=20261123-230246-ncu-fast",
        "8 kernels in both",
    ),
    "timing-kernels": ("/timing?view=Kernels", "each profiled alone"),
    "runs": ("/runs", "in 17 groups"),
    "runs-two": ("/runs?runs={fast}&runs={cpu}", "values differ, as used"),
    "flops": ("/flops", "runs are exact"),
    "flops-gaps": ("/flops?reading=FLOP+gap&run={eager}&stage=sam", "no colour where equal"),
    "flops-what-if": ("/flops?view=What+if", "new tokens"),
}  # fmt: skip
"""Of each view its address and words on it."""
LONG = (
    "timing-kernels",
    "timing-kernels-of-two",
    "timing-changes",
    "timing-pair",
    "timing-stages",
    "flops",
)


@pytest.fixture(scope="module")
def waiting() -> Iterator[ScriptedServer]:
    """A server that does not answer before the pictures are taken."""
    with scripted_server(lambda reply, sent: reply.over.wait(RUN_MS / 1000)) as server:
        yield server


@pytest.fixture(scope="module")
def app(
    waiting: ScriptedServer, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> Iterator[Server]:
    """The app with the examples alone, and a server that a run waits for."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "settings.yaml").write_text(
        f"history: {folder / 'history'}\n"
        f"backends:\n  waiting: {{spec: 'endpoint:{waiting.address}', model: the-model}}\n"
    )
    with serve(ROOT / "app.py", folder / "log", config=folder / "settings.yaml") as server:
        yield server


@pytest.fixture(scope="module")
def examples() -> dict[str, str]:
    """The newest run of the fast engine on a GPU, of the eager engine there, and of a CPU."""
    with History(SEED_LOCATION) as history:
        runs = history.runs(profiled=False)
    gpu = runs[runs["gpu"].notna()]
    chosen = {
        "fast": gpu[gpu["engine"] == "fast"], "eager": gpu[gpu["engine"] == "eager"],
        "cpu": runs[runs["device"] == "cpu"],
    }  # fmt: skip
    return {name: str(found["run_id"].iloc[0]) for name, found in chosen.items()}


def still(page: Page) -> Page:
    """Once nothing on the page changes any more."""
    page.evaluate("window.dsocrAsked = performance.now()")
    page.wait_for_function(SETTLED, arg=QUIET_MS)
    return page


def shoot(
    page: Page, folder: Path, name: str, rest: Callable[[Page], object] = still, tall: bool = False
) -> None:
    """All four; what `rest` does comes before each."""
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width, height in HEIGHTS.items():
            page.set_viewport_size({"width": width, "height": TALL if tall else height})
            rest(page)
            page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
            overflow = "root => root.scrollWidth - root.clientWidth"
            assert page.locator(MAIN).evaluate(overflow) <= 1, f"{name}: wider than {width} px"


def again(page: Page) -> None:
    """By its link: a chart that is there already takes on another scheme when it likes."""
    page.reload()
    still(page)


def opened(open_page: Callable[..., Page], address: str) -> Page:
    page = open_page("about:blank")
    page.add_init_script(WATCH)
    page.goto(address)
    return still(page)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_the_examples(
    app: Server, open_page, screenshots: Path, name: str, examples: dict[str, str], accessible
) -> None:
    address, words = VIEWS[name]
    page = opened(open_page, app.url + address.format(**examples))
    expect(page.locator(MAIN)).to_contain_text(words)
    assert page.locator(".stException").count() == 0
    for chart in page.locator(CHART).all():
        inked(chart, 0.01)

    def rest(page: Page) -> None:
        again(page)
        accessible(page)

    shoot(page, screenshots, f"view-{name}", rest, tall=name in LONG)


def test_a_run_with_its_progress_and_what_cancel_leaves(app: Server, open_page, screenshots: Path) -> None:
    page = opened(open_page, f"{app.url}/?page=06-small-ticket&b=waiting")
    Viewer(page).root.wait_for()
    run_button(page).click()
    panel = page.locator(".st-key-progress")
    expect(panel).to_contain_text("tokens/s", timeout=RUN_MS)  # A has read the page
    cancel = page.get_by_role("button", name="Cancel")
    shoot(page, screenshots, "view-compare-running", lambda page: _on_screen(cancel))
    cancel.click()
    panel.wait_for(state="hidden", timeout=RUN_MS)
    still(page)
    shoot(page, screenshots, "view-compare-cancelled")


def _on_screen(element: Locator) -> None:
    element.scroll_into_view_if_needed()
    expect(element).to_be_in_viewport()
