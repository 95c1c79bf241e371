"""How long the app takes to answer on a page that is open: a tab is clicked, the next page is asked for.

The time is that from the click or key to the page's last change, with the script at its end and no skeleton
left. Each tab of a page is clicked once a round, the first round, in which charts and their library are
loaded, is shown by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from dsocr_core.console import titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.measure.served_app import LOAD_MS, QUIET_MS, SETTLED, VIEWPORT, WATCH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_CLICK = "tab => { window.dsocrAsked = performance.now(); tab.click(); }"
_ASK = "() => { window.dsocrAsked = performance.now(); }"
_KEYS = {"/review": ("j", "k")}
"""Keys that turn the page, forth and back."""


@dataclass(frozen=True)
class Answer:
    """One way to ask a page for something, in milliseconds from the click or key on."""

    page: str
    asked: str
    first_ms: float
    again_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.again_ms or (self.first_ms,))


def ask_pages(chromium: Browser, url: str, pages: Sequence[tuple[str, str]], repeat: int) -> Iterator[Answer]:
    """Each of the pages (name, path), every tab of it `repeat` times after the first. Raises DsocrError."""
    from playwright.sync_api import Error

    width, height = VIEWPORT
    for name, path in pages:
        context = chromium.new_context(viewport={"width": width, "height": height})
        try:
            context.add_init_script(WATCH)
            page = context.new_page()
            page.goto(url + path, wait_until="commit")
            _settle(page)
            yield from _tabs(page, name, repeat)
            if path in _KEYS:
                yield _next_page(page, name, _KEYS[path], repeat)
        except Error as error:
            raise DsocrError(f"{url}{path}: no answer: {str(error).splitlines()[0]}") from error
        finally:
            context.close()


def _tabs(page: Page, name: str, repeat: int) -> Iterator[Answer]:
    tabs = page.locator('[data-testid="stMain"] [role="tab"]')
    times: dict[str, list[float]] = {}
    for _ in range(repeat + 1):
        # The first one is open: it comes last, so that each click changes something.
        for at in sorted(range(tabs.count()), key=lambda at: (at == 0, at)):
            words = tabs.nth(at).inner_text()
            tabs.nth(at).evaluate(_CLICK)
            times.setdefault(words, []).append(_settle(page))
    for words, found in times.items():
        yield Answer(name, f"tab {words}", found[0], tuple(found[1:]))


def _next_page(page: Page, name: str, keys: tuple[str, str], repeat: int) -> Answer:
    page.locator("body").press(keys[0])
    _settle(page)
    found = []
    for at in range(repeat + 1):
        page.evaluate(_ASK)
        page.keyboard.press(keys[(at + 1) % 2])
        found.append(_settle(page))
    return Answer(name, "next page", found[0], tuple(found[1:]))


def _settle(page: Page) -> float:
    """Milliseconds from what was asked last to the page's last change."""
    page.wait_for_function(SETTLED, arg=QUIET_MS, timeout=LOAD_MS)
    return float(page.evaluate("window.dsocrChanged - (window.dsocrAsked ?? 0)"))


def answers_table(answers: Sequence[Answer]) -> Table:
    table = titled_table(
        "Milliseconds from the click or key to the page's last change",
        "Page",
        "Asked",
        "First",
        "Median",
        "Most",
    )
    for answer in answers:
        most = max(answer.again_ms, default=answer.first_ms)
        table.add_row(
            answer.page, answer.asked, f"{answer.first_ms:.0f}", f"{answer.median_ms:.0f}", f"{most:.0f}"
        )
    return table
