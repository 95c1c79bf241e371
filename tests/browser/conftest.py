"""A real Chromium on a real server. Without a Chromium these tests skip, unless it is compulsory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.driver import ROOT, Server, serve

CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS = 30_000
"""Machines that run tests are busy: long waits, always for a condition."""


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        reason = "no Chromium on this machine (Debian: apt install chromium)"
        if os.environ.get("DSOCR_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and DSOCR_REQUIRE_BROWSER=1 makes it compulsory")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def fabricated_server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The Compare page on made-up roads."""
    folder = tmp_path_factory.mktemp("fabricated")
    with serve(
        Path(__file__).with_name("fabricated_app.py"), folder / "log", str(folder / "samples")
    ) as server:
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    """The app as users start it."""
    with serve(ROOT / "app.py", tmp_path_factory.mktemp("app") / "log") as server:
        yield server


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages in contexts of their own; fails the test on requests that leave this machine."""
    contexts, foreign = [], []

    def open_one(url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", lambda request: foreign.append(request.url) if _leaves(request.url) else None)
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not foreign, f"the page asked for {sorted(set(foreign))}"


def _leaves(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(os.environ.get("DSOCR_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
