"""The app on a port of its own, and the browser that measures it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.errors import DsocrError
from dsocr_core.settings import PROJECT_ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

START_S = 60.0
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
LOAD_MS = 60_000
QUIET_MS = 500
VIEWPORT = (1280, 900)

WATCH = """
window.dsocrFirst = null;
window.dsocrChanged = null;
// Elements in a canvas are not on the screen: with them a table tells screen readers its cells, 0.2 s later.
const shown = change => !(change.type === 'childList' && change.target.tagName === 'CANVAS')
    && !change.target.parentElement?.closest('canvas');
new MutationObserver(changes => {
    const main = document.querySelector('[data-testid="stMain"]');
    if (!main || !changes.some(shown)) return;
    window.dsocrChanged = performance.now();
    const shows = element => !element.querySelector('style')
        && (element.textContent.trim() || element.querySelector('canvas, svg, img'));
    if (window.dsocrFirst === null
            && [...main.querySelectorAll('[data-testid="stElementContainer"]')].some(shows))
        window.dsocrFirst = window.dsocrChanged;
}).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
SETTLED = """quiet =>
    window.dsocrFirst !== null
    && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]') !== null
    && document.querySelector('[data-testid="stSkeleton"]') === null
    && performance.now() - Math.max(window.dsocrChanged, window.dsocrAsked ?? 0) > quiet
"""


ERRORS = '[data-testid="stAlertContentError"], [data-testid="stException"]'


def refuse_errors(page: Page) -> None:
    """Raises DsocrError where the page shows an error: its time would be that of the error."""
    shown = page.locator(ERRORS)
    if shown.count():
        raise DsocrError(f"{page.url}: shows an error: {' '.join(shown.first.inner_text().split())[:200]}")


@contextmanager
def opened_browser(executable: str | None) -> Iterator[Browser]:
    """A headless Chromium. Raises DsocrError, which says what to install."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError as missing:
        raise DsocrError("measure pages needs playwright: pip install -r requirements-dev.txt") from missing
    path = executable or next(filter(None, map(shutil.which, BROWSERS)), None)
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
def served_app(
    script: Path = PROJECT_ROOT / "app.py", environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, float, int]]:
    """(address, seconds to the first healthy answer, process id) of the app on a free port.

    `environment` is added to this process's own.

    Raises DsocrError.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.headless", "true"]
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=script.parent,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            while not _healthy(url):
                if process.poll() is not None or time.monotonic() - began > START_S:
                    log.seek(0)
                    words = log.read().decode("utf-8", "replace").split()
                    raise DsocrError(f"{script}: the app did not start: {' '.join(words)[-300:]}")
                time.sleep(0.02)
            yield url, time.monotonic() - began, process.pid
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
