"""The app on a server of its own, a page at rest, what is in sight, and what tests do in its viewer."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Error, Locator, Page, Playwright

from tests.support.paths import ROOT

START_S, INK_S, RUN_MS = 180, 30, 300_000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows and toolbars: the same pages for a sixth less of CPU time."""
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
"""To be run in a page before its own scripts: notes its first content and its last change."""
_SETTLED = """
    window.dsocrFirst !== null
    && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]') !== null
    && document.querySelector('[data-testid="stSkeleton"]') === null
    && performance.now() - Math.max(window.dsocrChanged, window.dsocrAsked ?? 0) > 500
"""


def chromium_of(playwright: Playwright) -> Browser | None:
    """Start this machine's Chromium, if it has one."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    return path and playwright.chromium.launch(executable_path=path, args=arguments)


def settled(page: Page) -> None:
    """Wait until a page with WATCH has not changed for half a second after its script has ended."""
    page.wait_for_function(_SETTLED, timeout=60_000)


_IN_SIGHT = """() => {
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


def rested(page: Page) -> Page:
    """Wait until a page's script has ended; it has no error."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.locator('[data-testid="stSkeleton"]').first.wait_for(state="detached")
    assert page.locator(".stException, .stAlert").count() == 0
    return page


def in_sight(page: Page) -> tuple[list[str], list[str]]:
    """The widgets and the words in sight."""
    if rested(page).locator(".viewer").count():
        page.locator(".viewer[data-image]").wait_for()
    found = page.evaluate(_IN_SIGHT)
    return found["widgets"], found["words"]


@dataclass(frozen=True)
class Server:
    url: str
    log: Path


@contextmanager
def serve(
    script: Path, log: Path, *arguments: str, config: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Server]:
    """`streamlit run` on a free port of this machine's own address, the settings those of a YAML file.

    Its runs lie beside its log: what tests run is nobody's past. `options` are Streamlit's.
    """
    environment = os.environ | {"DSOCR_RUNS": str(log.parent / "runs")}
    environment |= {} if config is None else {"DSOCR_CONFIG": str(config)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    url, began = f"http://127.0.0.1:{port}", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--server.address", "127.0.0.1", *options, "--", *arguments],
            cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() - began > START_S:
                pytest.fail(f"streamlit did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.05)
        yield Server(url, log)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _healthy(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def serve_app(
    folder: Path, settings: str = "", options: Sequence[str] = ()
) -> AbstractContextManager[Server]:
    """The app under these settings (YAML), with its history, runs and log in a folder."""
    config = folder / "settings.yaml"
    config.write_text(f"history: {folder / 'history'}\n{settings}", "utf-8")
    return serve(ROOT / "app.py", folder / "log", config=config, options=options)


class Viewer:
    """The viewer of a page, by its data attributes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.root: Locator = page.locator(".viewer")

    def state(self) -> dict[str, str]:
        return self.root.evaluate("root => ({...root.dataset})")

    def wait(self, **facts: str) -> Viewer:
        """Until all of its data attributes are as given."""
        selector = "".join(f'[data-{name}="{value}"]' for name, value in facts.items())
        self.page.locator(f".viewer{selector}").wait_for()
        return self

    def show(self, sample: str) -> Viewer:
        """Pick a sample and wait until the viewer shows it."""
        self.page.locator(".st-key-sample").get_by_role("combobox").click()
        self.page.get_by_role("option", name=sample, exact=True).click()
        self.page.locator(f'.viewer[data-image^="{sample}:"]').wait_for()
        return self

    def locate(self, side: str, index: int) -> dict[str, float]:
        return self.root.evaluate("(root, [side, index]) => root.locate(side, index)", [side, index])

    def click(self, side: str, index: int) -> None:
        at = self.locate(side, index)
        self.page.mouse.click(at["x"], at["y"])

    def zoom(self, side: str, index: int) -> float:
        """Zoom with the wheel at a box; returns the new scale."""
        before, at = self.state()["scale"], self.locate(side, index)
        self.page.mouse.move(at["x"], at["y"])
        self.page.mouse.wheel(0, -400)
        self.page.locator(f'.viewer:not([data-scale="{before}"])').wait_for()
        return float(self.state()["scale"])

    def drawn(self, side: str) -> int:
        """Pixels of a pane's canvas that are not empty, once there are some."""
        return self.root.locator(f'.pane[data-side="{side}"] canvas').evaluate(
            """async canvas => {
                const pen = canvas.getContext("2d");
                for (let frame = 0; ; frame += 1) {
                    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
                    const count = data.filter((value, at) => at % 4 === 3 && value > 0).length;
                    if (count || frame > 600) return count;
                    await new Promise(requestAnimationFrame);
                }
            }"""
        )


def inked(part: Locator) -> None:
    """Wait until a hundredth of an element's pixels, as on the screen, is not of its commonest colour."""
    ends, share = time.monotonic() + INK_S, 0.0
    while share <= 0.01:
        assert time.monotonic() < ends, f"{share:.4f} of it is drawn"
        with suppress(Error):  # it was drawn anew meanwhile
            part.scroll_into_view_if_needed()
            picture = Image.open(BytesIO(part.screenshot())).convert("RGB")
            pixels = picture.width * picture.height
            share = 1 - max(count for count, _ in picture.getcolors(pixels) or ()) / pixels


def marked(viewer: Viewer, side: str, box: tuple[int, int, int, int], colour: tuple[int, int, int]) -> range:
    """Columns of the page in and just under a box in which the screen has that colour: where a mark is."""
    page = viewer.page.locator(f'.pane[data-side="{side}"] img')
    page.evaluate("image => image.decode()")
    at = page.bounding_box()
    assert at is not None
    scale = float(viewer.state()["scale"])
    left, top, right, bottom = (at["xy"[axis % 2]] + value * scale for axis, value in enumerate(box))
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top + 3}
    picture = Image.open(BytesIO(viewer.page.screenshot(clip=clip))).convert("RGB")
    columns = range(picture.width)
    found = [x for x in columns for y in range(picture.height) if picture.getpixel((x, y)) == colour]
    assert found, "no mark"
    return range(round(box[0] + min(found) / scale), round(box[0] + (max(found) + 1) / scale))


def chosen(page: Page) -> str:
    """The page that the viewer shows."""
    return Viewer(page).state()["image"].rpartition(":")[0]


def run_button(page: Page) -> Locator:
    """The sidebar's button; the viewer may offer another."""
    return page.locator(".st-key-run button")


def run_both(page: Page) -> None:
    """Press the sidebar's button and wait until the run is over: on a busy machine, minutes."""
    run_button(page).click()
    page.locator(".st-key-progress").wait_for()
    page.locator(".st-key-progress").wait_for(state="hidden", timeout=RUN_MS)
