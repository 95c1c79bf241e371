"""Time each page of the app in a real Chromium: its loads, each of its tabs, the way to the next page.

    python -m tests.perf.pages --repeat 10 --runs 1000

Every page of the navigation is loaded in a browser context of its own, so that nothing is cached in the
browser. Times are milliseconds from the navigation (or the click, or the key) to the first element with a
text or a picture ("content"), and to the page's last change before its script has ended, no skeleton is
left and nothing has changed for half a second ("settled"). The first time of each is shown by itself: it
has imports, charts and their library in it. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.perf.history import write_made_up_run
from tests.support.browser_driver import ROOT, WATCH, chromium_of, serve, settled

PAGES_A_RUN = 20
KEYS = ("j", "k")
"""In a review they turn the page, forth and back."""
_LINKS = "links => links.map(link => [link.innerText.split('\\n').pop(), new URL(link.href).pathname])"
_CLICK = "tab => { window.dsocrAsked = performance.now(); tab.click(); }"
_ASK = "() => { window.dsocrAsked = performance.now(); }"
_ERRORS = '[data-testid="stAlertContentError"], [data-testid="stException"]'

Times = tuple[float, float]
"""Milliseconds to the first content of a load, and until it has settled."""


def timed(page: Page, ask: Callable[[], object]) -> Times:
    ask()
    settled(page)
    if (shown := page.locator(_ERRORS)).count():  # its time would be that of the error
        sys.exit(f"{page.url} shows an error: {' '.join(shown.first.inner_text().split())[:200]}")
    content, last = page.evaluate("[dsocrFirst, dsocrChanged - (window.dsocrAsked ?? 0)]")
    return float(content), float(last)


@contextmanager
def loaded(chromium: Browser, url: str) -> Iterator[tuple[Page, Times]]:
    """A page in a context of its own, and the times of its load."""
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.add_init_script(WATCH)
        page = context.new_page()
        yield page, timed(page, lambda: page.goto(url, wait_until="commit"))


def measure(chromium: Browser, url: str, repeat: int) -> Iterator[dict[str, Any]]:
    """Everything there is to ask, `repeat` times after its first time."""
    with loaded(chromium, url) as (home, _):
        pages = home.locator('[data-testid="stSidebarNavLink"]').evaluate_all(_LINKS)
    for name, path in pages:
        loads = []
        for _ in range(repeat + 1):
            with loaded(chromium, url + path) as (page, times):
                loads.append(times)
                if len(loads) > repeat:
                    asked = {f"tab {tab}": found for tab, found in _tabs(page, repeat).items()}
                    if path == "/review":
                        asked["next page"] = _next_page(page, repeat)
        yield _row(name, "load", loads)
        yield from (_row(name, what, found) for what, found in asked.items())


def _row(page: str, what: str, times: list[Times]) -> dict[str, Any]:
    (_, first), again = times[0], times[1:]
    content, last = (statistics.median(column) for column in zip(*again, strict=True))
    median = {"content": content, "settled": last} if what == "load" else {"settled": last}
    return {"page": page, "what": what, "first": first, "median": median, "again": again}


def _tabs(page: Page, repeat: int) -> dict[str, list[Times]]:
    tabs = page.locator('[data-testid="stMain"] [role="tab"]')
    times: dict[str, list[Times]] = {}
    for _ in range(repeat + 1):
        # The first one is open: it comes last, so that each click changes something.
        for at in sorted(range(tabs.count()), key=lambda at: (at == 0, at)):
            tab = tabs.nth(at)
            times.setdefault(tab.inner_text(), []).append(timed(page, lambda: tab.evaluate(_CLICK)))  # noqa: B023
    return times


def _next_page(page: Page, repeat: int) -> list[Times]:
    timed(page, lambda: page.locator(".gallery button").first.click())  # from the grid to a page
    timed(page, lambda: page.locator("body").press(KEYS[0]))

    def turn(key: str) -> None:
        page.evaluate(_ASK)
        page.keyboard.press(key)

    return [timed(page, lambda: turn(KEYS[(at + 1) % 2])) for at in range(repeat + 1)]  # noqa: B023


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time each page of the app in a real browser.")
    parser.add_argument("--repeat", type=int, default=10, help="times of each, after a first one")
    parser.add_argument("--runs", type=int, default=0, help="made-up runs beside the examples")
    return parser


def main() -> None:
    options = build_parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="dsocr-pages-") as folder, sync_playwright() as playwright:
        chromium = chromium_of(playwright) or sys.exit("no Chromium on this machine")
        for number in range(options.runs):
            write_made_up_run(Path(folder) / "runs" / "history", number, pages=PAGES_A_RUN)
        with serve(ROOT / "app.py", Path(folder) / "log") as server:
            found = []
            for row in measure(chromium, server.url, options.repeat):
                print(row["page"], row["what"], row["median"], "first", row["first"], file=sys.stderr)
                found.append(row)
        chromium.close()
    print(json.dumps({"made_up_runs": options.runs, "asked": found}))


if __name__ == "__main__":
    main()
