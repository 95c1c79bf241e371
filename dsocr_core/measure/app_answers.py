"""How long the app takes to answer on a page that is open: a tab is clicked, the next page is asked for.

The time is that from the click or key to the page's last change, with the script at its end and no skeleton
left. Each tab of a page is clicked once a round; the first round, in which charts and their library are
loaded, is shown by itself. CPU times are medians of the rounds after it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from dsocr_core.console import titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.measure.cpu_spent import CpuOf, Spent, median
from dsocr_core.measure.served_app import LOAD_MS, QUIET_MS, SETTLED, VIEWPORT, WATCH, refuse_errors

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_CLICK = "tab => { window.dsocrAsked = performance.now(); tab.click(); }"
_ASK = "() => { window.dsocrAsked = performance.now(); }"
_KEYS = {"/review": ("j", "k")}
"""Keys that turn the page, forth and back."""
_Time = tuple[float, Spent]
"""Milliseconds, and what was computed meanwhile."""


@dataclass(frozen=True)
class Answer:
    """One way to ask a page for something, in milliseconds from the click or key on."""

    page: str
    asked: str
    first_ms: float
    again_ms: tuple[float, ...]
    server_cpu_ms: float | None = None
    browser_cpu_ms: float | None = None

    @property
    def median_ms(self) -> float:
        return statistics.median(self.again_ms or (self.first_ms,))


def ask_pages(
    chromium: Browser, url: str, pages: Sequence[tuple[str, str]], repeat: int, pid: int | None = None
) -> Iterator[Answer]:
    """Each of the pages (name, path), every tab of it `repeat` times after the first; `pid` is the server's.

    Raises DsocrError.
    """
    from playwright.sync_api import Error

    width, height = VIEWPORT
    for name, path in pages:
        context = chromium.new_context(viewport={"width": width, "height": height})
        try:
            context.add_init_script(WATCH)
            page = context.new_page()
            page.goto(url + path, wait_until="commit")
            _settle(page)
            cpu = CpuOf(page, pid)
            yield from _tabs(page, cpu, name, repeat)
            if path in _KEYS:
                yield _next_page(page, cpu, name, _KEYS[path], repeat)
        except Error as error:
            raise DsocrError(f"{url}{path}: no answer: {str(error).splitlines()[0]}") from error
        finally:
            context.close()


def _tabs(page: Page, cpu: CpuOf, name: str, repeat: int) -> Iterator[Answer]:
    tabs = page.locator('[data-testid="stMain"] [role="tab"]')
    times: dict[str, list[_Time]] = {}
    for _ in range(repeat + 1):
        # The first one is open: it comes last, so that each click changes something.
        for at in sorted(range(tabs.count()), key=lambda at: (at == 0, at)):
            words = tabs.nth(at).inner_text()
            with cpu.spent() as spent:
                tabs.nth(at).evaluate(_CLICK)
                took = _settle(page)
            times.setdefault(words, []).append((took, spent))
    for words, found in times.items():
        yield _answer(name, f"tab {words}", found)


def _next_page(page: Page, cpu: CpuOf, name: str, keys: tuple[str, str], repeat: int) -> Answer:
    page.locator("body").press(keys[0])
    _settle(page)
    found: list[_Time] = []
    for at in range(repeat + 1):
        with cpu.spent() as spent:
            page.evaluate(_ASK)
            page.keyboard.press(keys[(at + 1) % 2])
            took = _settle(page)
        found.append((took, spent))
    return _answer(name, "next page", found)


def _answer(page: str, asked: str, times: Sequence[_Time]) -> Answer:
    (first, _), *again = times
    computed = [spent for _, spent in again] or [times[0][1]]
    return Answer(
        page, asked, first, tuple(took for took, _ in again),
        median(spent.server_ms for spent in computed), median(spent.browser_ms for spent in computed),
    )  # fmt: skip


def _settle(page: Page) -> float:
    """Milliseconds from what was asked last to the page's last change."""
    page.wait_for_function(SETTLED, arg=QUIET_MS, timeout=LOAD_MS)
    refuse_errors(page)
    return float(page.evaluate("window.dsocrChanged - (window.dsocrAsked ?? 0)"))


def answers_table(answers: Sequence[Answer]) -> Table:
    table = titled_table(
        "Milliseconds from the click or key to the page's last change",
        "Page",
        "Asked",
        "First",
        "Median",
        "Most",
        "Server CPU",
        "Browser CPU",
    )
    for answer in answers:
        most = max(answer.again_ms, default=answer.first_ms)
        table.add_row(
            answer.page, answer.asked, f"{answer.first_ms:.0f}", f"{answer.median_ms:.0f}", f"{most:.0f}",
            *("-" if spent is None else f"{spent:.0f}"
              for spent in (answer.server_cpu_ms, answer.browser_cpu_ms)),
        )  # fmt: skip
    return table
