"""What a page shows before anything is scrolled or clicked: few widgets, few words."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser_driver import Server
from tests.support.browsers import QUIET_MS, SETTLED, WATCH

pytestmark = pytest.mark.browser
MOST = {"": (30, 180), "review": (30, 180), "timing": (20, 120), "runs": (20, 120), "flops": (20, 120)}
"""Of each page the most widgets and words; a table is one widget, and so are the texts that were read: their
words are not counted."""

COUNT = """() => {
  const widgets = new Set(), words = [];
  const take = 'a[href], button, input, textarea, select, summary, [role=tab], [role=slider], [role=option], '
    + '[data-testid=stCheckbox]';
  const seen = (box) => box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
    && box.right > 0 && box.left < innerWidth;
  const visible = (element, style) => (style.display === 'contents' || element.checkVisibility())
    && style.visibility !== 'hidden' && style.opacity !== '0' && style.clipPath !== 'inset(50%)';
  const text = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    if (![...range.getClientRects()].some(seen)) return;
    words.push(...node.textContent.split(/\\s+/).filter((word) => /[\\p{L}\\p{N}]/u.test(word)));
  };
  const walk = (root) => {
    for (const node of root.childNodes) {
      if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) text(node);
      if (node.nodeType !== Node.ELEMENT_NODE || /^(STYLE|SCRIPT|CANVAS)$/.test(node.tagName)) continue;
      if (!visible(node, getComputedStyle(node)) || node.dataset.testid === 'stIconMaterial') continue;
      if (node.matches('[data-testid=stDataFrame], .texts')) {
        if (seen(node.getBoundingClientRect())) widgets.add(node);
        continue;
      }
      if (node.matches(take) && seen(node.getBoundingClientRect())) {
        widgets.add(node.closest('[data-testid=stMultiSelect], [data-testid=stSelectbox]') ?? node);
      }
      walk(node.shadowRoot ?? node);
    }
  };
  walk(document.body);
  const name = (one) => (one.getAttribute('aria-label') || one.innerText || one.tagName).slice(0, 24);
  return { widgets: [...widgets].map(name), words };
}"""


def count(page: Page) -> tuple[list[str], list[str]]:
    """The widgets and the words in sight."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.locator('[data-testid="stSkeleton"]').first.wait_for(state="detached")
    if page.locator(".viewer").count():
        page.locator(".viewer[data-image]").wait_for()
    found = page.evaluate(COUNT)
    return found["widgets"], found["words"]


@pytest.mark.parametrize("name", MOST)
def test_a_first_screen_has_few_widgets_and_words(new_server: Server, open_page, name: str) -> None:
    widgets, words = count(open_page(f"{new_server.url}/{name}", 1440, 900))
    most_widgets, most_words = MOST[name]
    assert len(widgets) <= most_widgets, widgets
    assert len(words) <= most_words, " ".join(words)


SHIFTS = """
window.moved = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
}).observe({ type: 'layout-shift', buffered: true });
"""


MOST_MOVED = 0.1
A_PAGE = "review?review=20261122-224122-a5d34156&page=03-tall-notice.png"


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("name", ["", "review", A_PAGE, "timing", "runs", "flops"])
def test_nothing_moves_while_a_page_comes_in(
    new_server: Server, browser: Browser, name: str, width: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        context.add_init_script(WATCH)
        context.add_init_script(SHIFTS)
        page = context.new_page()
        moved = []
        for _ in range(2):  # the better of two: a machine with other work sends parts of a page apart
            page.goto(f"{new_server.url}/{name}")
            page.wait_for_function(SETTLED, arg=QUIET_MS, timeout=60_000)
            if name in ("", A_PAGE):
                assert page.locator(".viewer[data-image]").count() == 1
            moved.append(page.evaluate("window.moved"))
            if moved[-1] < MOST_MOVED:
                break
        assert min(moved) < MOST_MOVED
