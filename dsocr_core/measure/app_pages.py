"""How long each page of the app takes to show something, and to come to rest, in a real browser.

    dsocr measure pages --repeat 10 [--runs 1000]

Starts the app on a free port of 127.0.0.1 and opens each page that its navigation lists, every time in a
browser context of its own, so nothing is cached in the browser. All times start with the navigation. "First
content" is the first element of the page itself with a text or a picture. "Settled" is the page's last
change before the script has ended, no skeleton is left and nothing has changed for half a second; what a
table says of itself to screen readers, later and out of sight, is no change. The first load of each page
after the server's start is shown by itself: it has the imports in it. Beside the times stands the CPU time
of the server's process and of the page's main thread: on a busy machine these say more.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dsocr_core.console import OK, titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.measure.app_answers import Answer, answers_table, ask_pages
from dsocr_core.measure.cpu_spent import CpuOf, median
from dsocr_core.measure.history_queries import write_made_up_run
from dsocr_core.measure.served_app import (
    LOAD_MS,
    QUIET_MS,
    SETTLED,
    VIEWPORT,
    WATCH,
    opened_browser,
    refuse_errors,
    served_app,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PAGES_A_RUN = 20
_LINKS = "links => links.map(link => [link.innerText.split('\\n').pop(), new URL(link.href).pathname])"


@dataclass(frozen=True)
class Load:
    """One load of a page, in milliseconds from the navigation on."""

    first_content_ms: float
    settled_ms: float
    server_cpu_ms: float | None = None
    """CPU time of the server's process; None where the system does not tell."""
    browser_cpu_ms: float | None = None
    """CPU time of the page's main thread."""


@dataclass(frozen=True)
class PageLoads:
    """A page of the app: its name in the navigation, its path, its first load and those after it."""

    name: str
    path: str
    first: Load
    loads: tuple[Load, ...]

    def median(self) -> Load:
        """Of each time by itself."""
        return Load(
            statistics.median(load.first_content_ms for load in self.loads),
            statistics.median(load.settled_ms for load in self.loads),
            median(load.server_cpu_ms for load in self.loads),
            median(load.browser_cpu_ms for load in self.loads),
        )


@dataclass(frozen=True)
class AppLoads:
    server_start_s: float
    pages: tuple[PageLoads, ...]
    answers: tuple[Answer, ...] = ()
    made_up_runs: int = 0

    def document(self) -> dict[str, Any]:
        """JSON-ready values."""
        rows = [asdict(page) | {"median": asdict(page.median())} for page in self.pages]
        return {
            "server_start_s": self.server_start_s, "made_up_runs": self.made_up_runs, "quiet_ms": QUIET_MS,
            "pages": rows, "answers": [asdict(answer) for answer in self.answers],
        }  # fmt: skip

    def print(self, console: Console) -> None:
        title = f"Milliseconds from the navigation on; the server started in {self.server_start_s:.2f} s"
        if self.made_up_runs:
            title += f"; {self.made_up_runs:,} made-up runs beside the examples"
        table = titled_table(
            title, "Page", "First load: content", "settled", "Content", "min-max", "Settled", "min-max",
            "Server CPU", "Browser CPU",
        )  # fmt: skip
        for page in self.pages:
            median = page.median()
            table.add_row(
                page.name,
                f"{page.first.first_content_ms:.0f}",
                f"{page.first.settled_ms:.0f}",
                f"{median.first_content_ms:.0f}",
                _range([load.first_content_ms for load in page.loads]),
                f"{median.settled_ms:.0f}",
                _range([load.settled_ms for load in page.loads]),
                *("-" if spent is None else f"{spent:.0f}"
                  for spent in (median.server_cpu_ms, median.browser_cpu_ms)),
            )  # fmt: skip
        console.print(table)
        if self.answers:
            console.print(answers_table(self.answers))


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f}-{max(values):.0f}"


def run(repeat: int, runs: int, browser: str | None, console: Console, as_json: bool) -> int:
    """Measure and print tables or one JSON document; returns the exit code. Raises DsocrError.

    The app has a history of its own: the examples, and so many made-up runs of 20 pages.
    """
    with tempfile.TemporaryDirectory(prefix="dsocr-pages-") as folder:
        for number in range(runs):
            write_made_up_run(Path(folder) / "history", number, pages=_PAGES_A_RUN)
        with (
            opened_browser(browser) as chromium,
            served_app(environment={"DSOCR_RUNS": folder}) as (url, started_s, pid),
        ):
            pages = tuple(load_pages(chromium, url, repeat, pid))
            answers = tuple(ask_pages(chromium, url, [(page.name, page.path) for page in pages], repeat, pid))
    found = AppLoads(started_s, pages, answers, runs)
    if as_json:
        print(json.dumps(found.document()))
    else:
        found.print(console)
    return OK


def load_pages(chromium: Browser, url: str, repeat: int, pid: int | None = None) -> Iterator[PageLoads]:
    """Each page of the navigation, loaded `repeat` times after its first load; `pid` is the server's.

    Raises DsocrError.
    """
    from playwright.sync_api import Error

    try:
        home, navigation = _load(chromium, f"{url}/", pid)
        for name, path in navigation:
            print(name, file=sys.stderr)
            first = home if path == "/" else _load(chromium, url + path, pid)[0]
            loads = tuple(_load(chromium, url + path, pid)[0] for _ in range(repeat))
            yield PageLoads(name, path, first, loads)
    except Error as error:
        raise DsocrError(f"{url}: a page did not load: {str(error).splitlines()[0]}") from error


def _load(chromium: Browser, url: str, pid: int | None) -> tuple[Load, list[tuple[str, str]]]:
    """The times of one load, and what the navigation lists: (name, path) of each page."""
    width, height = VIEWPORT
    context = chromium.new_context(viewport={"width": width, "height": height})
    try:
        context.add_init_script(WATCH)
        page = context.new_page()
        with CpuOf(page, pid).spent() as spent:
            page.goto(url, wait_until="commit")
            page.wait_for_function(SETTLED, arg=QUIET_MS, timeout=LOAD_MS)
        refuse_errors(page)
        first, settled = page.evaluate("[window.dsocrFirst, window.dsocrChanged]")
        links = page.locator('[data-testid="stSidebarNavLink"]').evaluate_all(_LINKS)
        load = Load(float(first), float(settled), spent.server_ms, spent.browser_ms)
        return load, [(name, path) for name, path in links]
    finally:
        context.close()
