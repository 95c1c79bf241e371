"""How long each page of the app takes to show something, and to come to rest, in a real browser.

    dsocr measure pages --repeat 5

Starts the app on a free port of 127.0.0.1 and opens each page that its navigation lists, every time in a
browser context of its own, so nothing is cached in the browser. All times start with the navigation. "First
content" is the first element of the page itself with a text or a picture. "Settled" is the page's last
change before the script has ended, no skeleton is left and nothing has changed for half a second. The first
load of each page after the server's start is shown by itself: it has the imports in it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dsocr_core.console import OK, titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.settings import PROJECT_ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START_S = 60.0
LOAD_MS = 60_000
QUIET_MS = 500
VIEWPORT = (1280, 900)
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")

_WATCH = """
window.dsocrFirst = null;
window.dsocrChanged = null;
new MutationObserver(() => {
    const main = document.querySelector('[data-testid="stMain"]');
    if (!main) return;
    window.dsocrChanged = performance.now();
    const shows = element => !element.querySelector('style')
        && (element.textContent.trim() || element.querySelector('canvas, svg, img'));
    if (window.dsocrFirst === null
            && [...main.querySelectorAll('[data-testid="stElementContainer"]')].some(shows))
        window.dsocrFirst = window.dsocrChanged;
}).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
_SETTLED = """quiet =>
    window.dsocrFirst !== null
    && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]') !== null
    && document.querySelector('[data-testid="stSkeleton"]') === null
    && performance.now() - window.dsocrChanged > quiet
"""
_LINKS = "links => links.map(link => [link.innerText.split('\\n').pop(), new URL(link.href).pathname])"


@dataclass(frozen=True)
class Load:
    """One load of a page, in milliseconds from the navigation on."""

    first_content_ms: float
    settled_ms: float


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
        )


@dataclass(frozen=True)
class AppLoads:
    server_start_s: float
    pages: tuple[PageLoads, ...]

    def document(self) -> dict[str, Any]:
        """JSON-ready values."""
        rows = [asdict(page) | {"median": asdict(page.median())} for page in self.pages]
        return {"server_start_s": self.server_start_s, "quiet_ms": QUIET_MS, "pages": rows}

    def print(self, console: Console) -> None:
        title = f"Milliseconds from the navigation on; the server started in {self.server_start_s:.2f} s"
        table = titled_table(
            title, "Page", "First load: content", "settled", "Content", "min-max", "Settled", "min-max"
        )
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
            )
        console.print(table)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f}-{max(values):.0f}"


def run(repeat: int, browser: str | None, console: Console, as_json: bool) -> int:
    """Measure and print a table or one JSON document; returns the exit code. Raises DsocrError."""
    with opened_browser(browser) as chromium, served_app() as (url, started_s):
        found = AppLoads(started_s, tuple(load_pages(chromium, url, repeat)))
    if as_json:
        print(json.dumps(found.document()))
    else:
        found.print(console)
    return OK


def load_pages(chromium: Browser, url: str, repeat: int) -> Iterator[PageLoads]:
    """Each page of the navigation, loaded `repeat` times after its first load. Raises DsocrError."""
    from playwright.sync_api import Error

    try:
        home, navigation = _load(chromium, f"{url}/")
        for name, path in navigation:
            print(name, file=sys.stderr)
            first = home if path == "/" else _load(chromium, url + path)[0]
            yield PageLoads(name, path, first, tuple(_load(chromium, url + path)[0] for _ in range(repeat)))
    except Error as error:
        raise DsocrError(f"{url}: a page did not load: {str(error).splitlines()[0]}") from error


def _load(chromium: Browser, url: str) -> tuple[Load, list[tuple[str, str]]]:
    """The times of one load, and what the navigation lists: (name, path) of each page."""
    width, height = VIEWPORT
    context = chromium.new_context(viewport={"width": width, "height": height})
    try:
        context.add_init_script(_WATCH)
        page = context.new_page()
        page.goto(url, wait_until="commit")
        page.wait_for_function(_SETTLED, arg=QUIET_MS, timeout=LOAD_MS)
        first, settled = page.evaluate("[window.dsocrFirst, window.dsocrChanged]")
        links = page.locator('[data-testid="stSidebarNavLink"]').evaluate_all(_LINKS)
        return Load(float(first), float(settled)), [(name, path) for name, path in links]
    finally:
        context.close()


# --- browser and server -------------------------------------------------------------------------


@contextmanager
def opened_browser(executable: str | None) -> Iterator[Browser]:
    """A headless Chromium. Raises DsocrError, which says what to install."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError as missing:
        raise DsocrError("measure pages needs playwright: pip install -r requirements-dev.txt") from missing
    path = executable or next(filter(None, map(shutil.which, _BROWSERS)), None)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        except Error as error:
            raise DsocrError(
                f"{path or 'chromium'}: no browser started; install one (Debian: apt install chromium) or "
                "give --browser FILE"
            ) from error
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def served_app(script: Path = PROJECT_ROOT / "app.py") -> Iterator[tuple[str, float]]:
    """(address, seconds to the first healthy answer) of the app on a free port. Raises DsocrError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.headless", "true"]
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=script.parent, env=os.environ.copy(), stdout=log, stderr=subprocess.STDOUT
        )
        url = f"http://127.0.0.1:{port}"
        try:
            while not _healthy(url):
                if process.poll() is not None or time.monotonic() - began > START_S:
                    log.seek(0)
                    words = log.read().decode("utf-8", "replace").split()
                    raise DsocrError(f"{script}: the app did not start: {' '.join(words)[-300:]}")
                time.sleep(0.02)
            yield url, time.monotonic() - began
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
