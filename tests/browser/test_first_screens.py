"""What a page shows before anything is scrolled or clicked: few widgets, few words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Browser

from dsocr_core.runs.history import History
from tests.support.browser_driver import WATCH, Server, in_sight, serve_app, settled
from tests.support.review_sides import both, changed, markup, write

pytestmark = pytest.mark.browser
WIDTHS, MOST_MOVED = (1440, 1024, 390), 0.1
LONG = "The words of a long paragraph, in which one side reads something else, " * 4
MOST = {"": (30, 180), "review": (30, 180), "timing": (20, 120), "runs": (20, 120), "flops": (20, 120)}
"""Of each page the most widgets and words; a table is one widget, and so are the texts that were read: their
words are not counted."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app of somebody with runs of their own, each of which one test opens first."""
    folder = tmp_path_factory.mktemp("own")
    picture = folder / "page.png"
    Image.new("RGB", (1000, 800), "white").save(picture)
    pages = {f"page-{n}.png": both(markup(), markup(changed(n, text=LONG)), image=picture) for n in range(4)}
    with History(folder / "history") as history:
        for place, width in enumerate(WIDTHS):
            write(history, f"own-{width}", pages, created=f"2026-11-29T0{place}:00:00+00:00")
    with serve_app(folder) as server:
        yield server


@pytest.mark.parametrize("name", MOST)
def test_a_first_screen_has_few_widgets_and_words(app: Server, open_page, name: str) -> None:
    widgets, words = in_sight(open_page(f"{app.url}/{name}", 1440, 900))
    most_widgets, most_words = MOST[name]
    assert len(widgets) <= most_widgets, widgets
    assert len(words) <= most_words, " ".join(words)


SHIFTS = """
window.moved = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
}).observe({ type: 'layout-shift', buffered: true });
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "name", ["review?review=own-{}", "review?review=own-{}&page=page-2.png", "", "timing", "runs", "flops"]
)
def test_nothing_moves_or_fails_while_a_page_comes_in(
    app: Server, browser: Browser, name: str, width: int
) -> None:
    """A review moves at its first visit alone, so each width has one of its own."""
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        context.add_init_script(WATCH)
        context.add_init_script(SHIFTS)
        page = context.new_page()
        failed: list[str] = []
        unwanted = "SyntaxHighlighter"  # more of the client than the rest of a page
        page.on("response", lambda answer: failed.append(answer.url)
                if answer.status >= 400 or unwanted in answer.url else None)  # fmt: skip
        page.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
        page.goto(f"{app.url}/{name.format(width)}")
        settled(page)
        assert page.locator(".viewer[data-image]").count() == (not name or "page=" in name)
        assert page.evaluate("window.moved") < MOST_MOVED
        assert not failed
        if "page=" in name:  # wider words, as of a late font, move nothing; no column hides its end
            page.add_style_tag(content=".st-key-review-verdict button { letter-spacing: 2px }")
            page.evaluate("new Promise(requestAnimationFrame)")
            assert page.evaluate("window.moved") < MOST_MOVED
            assert page.locator(".texts").evaluate("texts => texts.scrollWidth <= texts.clientWidth")
