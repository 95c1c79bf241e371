"""Time each page of the app in a real Chromium: its loads, each of its tabs, the way to the next page.

    python -m tests.perf.pages --repeat 10 --runs 1000

Every page of the navigation is loaded in a browser context of its own, so that nothing is cached in the
browser. Times are milliseconds from the navigation (or the click, or the key) to the first element with a
text or a picture ("content"), and to the page's last change before its script has ended, no skeleton is
left and nothing has changed for half a second ("settled"). The first time of each is shown by itself: it
has imports, charts and their library in it. Beside the times stands the CPU time of the server's process
and of the page's main thread: on a busy machine these say more. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.perf.history import write_made_up_run
from tests.support.browser_driver import ROOT, serve
from tests.support.browsers import CHROMIUM_ARGUMENTS, QUIET_MS, SETTLED, WATCH, find_chromium

LOAD_MS = 60_000
PAGES_A_RUN = 20
KEYS = {"/review": ("j", "k")}
"""Keys that turn the page, forth and back."""
_LINKS = "links => links.map(link => [link.innerText.split('\\n').pop(), new URL(link.href).pathname])"
_CLICK = "tab => { window.dsocrAsked = performance.now(); tab.click(); }"
_ASK = "() => { window.dsocrAsked = performance.now(); }"
_ERRORS = '[data-testid="stAlertContentError"], [data-testid="stException"]'

Times = dict[str, float]
"""Milliseconds by name: content (of a load), settled, server_cpu, browser_cpu."""


@dataclass(frozen=True)
class Asked:
    """One way to ask the app for something, its first time and those after it."""

    page: str
    what: str
    first: Times
    again: list[Times]

    def median(self) -> Times:
        """Of each time by itself."""
        return {name: statistics.median(times[name] for times in self.again) for name in self.first}

    def __str__(self) -> str:
        words = [f"{name} {value:.0f}" for name, value in self.median().items()]
        settled = [times["settled"] for times in self.again]
        first = f"first {self.first['settled']:.0f}"
        return f"{self.page}, {self.what}: {', '.join(words)}; {min(settled):.0f}-{max(settled):.0f}, {first}"


class Watched:
    """A page of the browser, with the clocks of its main thread and of the server's process."""

    def __init__(self, page: Page, devtools: CDPSession, pid: int) -> None:
        self.page, self._devtools, self._pid = page, devtools, pid

    def timed(self, ask: Callable[[], object]) -> Times:
        before = self._cpu_ms()
        ask()
        self.page.wait_for_function(SETTLED, arg=QUIET_MS, timeout=LOAD_MS)
        if (shown := self.page.locator(_ERRORS)).count():  # its time would be that of the error
            sys.exit(f"{self.page.url} shows an error: {' '.join(shown.first.inner_text().split())[:200]}")
        content, settled = self.page.evaluate("[dsocrFirst, dsocrChanged - (window.dsocrAsked ?? 0)]")
        cpu = {name: value - before[name] for name, value in self._cpu_ms().items()}
        return {"content": float(content), "settled": float(settled), **cpu}

    def answered(self, ask: Callable[[], object]) -> Times:
        """The same of a page that is there: without its first content."""
        return {name: value for name, value in self.timed(ask).items() if name != "content"}

    def _cpu_ms(self) -> Times:
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        thread = next(float(item["value"]) for item in metrics if item["name"] == "TaskDuration")
        cells = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(cells[11]) + int(cells[12])
        return {"server_cpu": 1000 * ticks / os.sysconf("SC_CLK_TCK"), "browser_cpu": 1000 * thread}


@contextmanager
def watched(chromium: Browser, pid: int) -> Iterator[Watched]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    # CPU time, not time: beside other programs the two differ.
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    yield Watched(page, devtools, pid)
    context.close()


def measure(chromium: Browser, url: str, pid: int, repeat: int) -> Iterator[Asked]:
    """Everything there is to ask, `repeat` times after its first time; `pid` is the server's."""
    with watched(chromium, pid) as home:
        home.timed(lambda: home.page.goto(url))
        pages = home.page.locator('[data-testid="stSidebarNavLink"]').evaluate_all(_LINKS)
    for name, path in pages:
        loads = []
        for _ in range(repeat + 1):
            with watched(chromium, pid) as one:
                loads.append(one.timed(lambda: one.page.goto(url + path, wait_until="commit")))  # noqa: B023
        yield Asked(name, "load", loads[0], loads[1:])
        with watched(chromium, pid) as one:
            one.timed(lambda: one.page.goto(url + path, wait_until="commit"))  # noqa: B023
            yield from _tabs(one, name, repeat)
            if path in KEYS:
                yield _next_page(one, name, KEYS[path], repeat)


def _tabs(one: Watched, name: str, repeat: int) -> Iterator[Asked]:
    tabs = one.page.locator('[data-testid="stMain"] [role="tab"]')
    times: dict[str, list[Times]] = {}
    for _ in range(repeat + 1):
        # The first one is open: it comes last, so that each click changes something.
        for at in sorted(range(tabs.count()), key=lambda at: (at == 0, at)):
            tab = tabs.nth(at)
            times.setdefault(tab.inner_text(), []).append(one.answered(lambda: tab.evaluate(_CLICK)))  # noqa: B023
    for words, (first, *again) in times.items():
        yield Asked(name, f"tab {words}", first, again)


def _next_page(one: Watched, name: str, keys: tuple[str, str], repeat: int) -> Asked:
    one.answered(lambda: one.page.locator(".gallery button").first.click())  # from the grid to a page
    one.answered(lambda: one.page.locator("body").press(keys[0]))

    def turn(key: str) -> None:
        one.page.evaluate(_ASK)
        one.page.keyboard.press(key)

    first, *again = [one.answered(lambda: turn(keys[(at + 1) % 2])) for at in range(repeat + 1)]  # noqa: B023
    return Asked(name, "next page", first, again)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time each page of the app in a real browser.")
    parser.add_argument("--repeat", type=int, default=10, help="times of each, after a first one")
    parser.add_argument("--runs", type=int, default=0, help="made-up runs beside the examples")
    return parser


def main() -> None:
    options = build_parser().parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="dsocr-pages-") as folder,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=[*CHROMIUM_ARGUMENTS]) as chromium,
    ):
        for number in range(options.runs):
            write_made_up_run(Path(folder) / "runs" / "history", number, pages=PAGES_A_RUN)
        with serve(ROOT / "app.py", Path(folder) / "log") as server:
            found = []
            for asked in measure(chromium, server.url, server.pid, options.repeat):
                print(asked, file=sys.stderr)
                found.append(asdict(asked) | {"median": asked.median()})
    print(json.dumps({"server_start_s": server.started_s, "made_up_runs": options.runs, "asked": found}))


if __name__ == "__main__":
    main()
