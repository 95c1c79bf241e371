"""A real Chromium on a real server. Without a Chromium these tests skip, unless it is compulsory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.support.browser_driver import ROOT, Server, chromium_of, serve, serve_app
from tests.support.paths import APPS

HERE = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")
WAIT_MS = 60_000
"""Machines that run tests are busy: long waits, always for a condition."""
expect.set_options(timeout=WAIT_MS)  # it has 5 s of its own, whatever the context says


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = chromium_of(playwright)
        if chromium is None:
            reason = "no Chromium on this machine (Debian: apt install chromium-headless-shell)"
            if os.environ.get("DSOCR_REQUIRE_BROWSER") == "1":
                pytest.fail(f"{reason}, and DSOCR_REQUIRE_BROWSER=1 makes it compulsory")
            pytest.skip(reason)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def fabricated_server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The Compare page on made-up backends."""
    folder = tmp_path_factory.mktemp("fabricated")
    with serve(APPS / "page_app.py", folder / "log", "compare", str(folder / "samples")) as server:
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app as users start it, but with a history of its own: what tests run is nobody's past."""
    with serve_app(tmp_path_factory.mktemp("app")) as server:
        yield server


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The browser of all tests: what every page is made of is loaded and compiled once."""
    context = _context(browser)
    yield context
    context.close()


def _context(browser: Browser) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    return context


@pytest.fixture(autouse=True)
def foreign(context: BrowserContext) -> Iterator[list[str]]:
    """Fails the test on requests that leave this machine; forgets the cookies."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    context.on("request", note)
    yield asked
    context.remove_listener("request", note)
    context.clear_cookies()
    leaving = {url for url in asked if not url.startswith(HERE)}
    assert not leaving, f"the page asked for {sorted(leaving)}"


@pytest.fixture
def open_page(browser: Browser, context: BrowserContext, foreign: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens pages in tabs of their own; with `alone`, in a browser that knows nothing of the others."""
    opened: list[Page] = []

    def open_one(
        url: str, width: int = 1280, height: int = 900, scheme: str = "light", alone: bool = False
    ) -> Page:
        page = (_context(browser) if alone else context).new_page()
        opened.append(page)
        if alone:
            page.on("request", lambda request: foreign.append(request.url))
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.goto(url)
        return page

    yield open_one
    for page in opened:
        (page if page.context is context else page.context).close()


@pytest.fixture(scope="session")
def accessible() -> Callable[[Page], None]:
    """Asserts that axe-core finds nothing serious or critical on a page."""
    package = pytest.importorskip("axe_playwright_python", reason="pip install -r requirements-dev.txt")
    script = (Path(package.__file__).parent / "axe.min.js").read_text("utf-8")

    def check(page: Page) -> None:
        page.evaluate(script)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        said = [
            f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
            for one in grave
            for node in one["nodes"]
        ]
        assert not said, "\n".join(said)

    return check


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(os.environ.get("DSOCR_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
