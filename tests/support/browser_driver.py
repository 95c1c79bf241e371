"""The app on a server of its own, and what tests do in its viewer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Error, Locator, Page

from tests.support.paths import ROOT

START_S = 180
INK_S = 30


@dataclass(frozen=True)
class Server:
    url: str
    pid: int
    started_s: float
    """From the start of the process to its first healthy answer."""
    log: Path


@contextmanager
def serve(
    script: Path,
    log: Path,
    *arguments: str,
    config: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """`streamlit run` on a free port of this machine's own address, the settings those of a YAML file.

    Its runs lie beside its log: what tests run is nobody's past. `options` are Streamlit's.
    """
    environment = os.environ | {"DSOCR_RUNS": str(log.parent / "runs")}
    if config is not None:
        environment["DSOCR_CONFIG"] = str(config)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--server.address", "127.0.0.1", *options, "--", *arguments],
            cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() - began > START_S:
                pytest.fail(f"streamlit did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.05)
        yield Server(url, process.pid, time.monotonic() - began, log)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def serve_app(
    folder: Path, settings: str = "", options: Sequence[str] = ()
) -> AbstractContextManager[Server]:
    """The app under these settings (YAML), with its history, runs and log in a folder."""
    config = folder / "settings.yaml"
    config.write_text(f"history: {folder / 'history'}\n{settings}", "utf-8")
    return serve(ROOT / "app.py", folder / "log", config=config, options=options)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


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

    def zoom(self, side: str, index: int, wheel: int = -400) -> float:
        """Zoom with the wheel at a box; returns the new scale."""
        before = self.state()["scale"]
        at = self.locate(side, index)
        self.page.mouse.move(at["x"], at["y"])
        self.page.mouse.wheel(0, wheel)
        self.page.locator(f'.viewer:not([data-scale="{before}"])').wait_for()
        return float(self.state()["scale"])

    def text(self, side: str) -> str:
        """What stands in the row of the selected box on one side."""
        return self.root.locator(f'.row.selected [data-side="{side}"]').inner_text()

    def drawn(self, side: str) -> int:
        """Pixels of a pane's canvas that are not empty, once there are some."""
        return self.root.locator(f'.pane[data-side="{side}"] canvas').evaluate(
            """async canvas => {
                let count = 0;
                for (let frame = 0; frame < 600 && count === 0; frame += 1) {
                    if (frame > 0) await new Promise(requestAnimationFrame);
                    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                    for (let at = 3; at < data.length; at += 4) if (data[at] > 0) count += 1;
                }
                return count;
            }"""
        )


def inked(part: Locator, least: float) -> None:
    """Wait until that share of an element's pixels, as on the screen, is not of its commonest colour.

    Every third pixel each way is looked at, which passes over no word or line.
    """
    ends = time.monotonic() + INK_S
    share = 0.0
    while share <= least:
        assert time.monotonic() < ends, f"{share:.4f} of it is drawn"
        with suppress(Error):  # it was drawn anew meanwhile
            part.scroll_into_view_if_needed()
            share = _ink(part)


def _ink(part: Locator) -> float:
    whole = Image.open(BytesIO(part.screenshot())).convert("RGB")
    picture = whole.resize((whole.width // 3, whole.height // 3), Image.Resampling.NEAREST)
    pixels = picture.width * picture.height
    colours = picture.getcolors(maxcolors=pixels)
    assert colours is not None
    return 1 - max(count for count, _ in colours) / pixels


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
    found = [
        x for x in range(picture.width) for y in range(picture.height) if picture.getpixel((x, y)) == colour
    ]
    assert found, "no mark"
    return range(round(box[0] + min(found) / scale), round(box[0] + (max(found) + 1) / scale))


def chosen(page: Page) -> str:
    """The page that the viewer shows."""
    return Viewer(page).state()["image"].rpartition(":")[0]


def run_button(page: Page) -> Locator:
    """The sidebar's button; the viewer may offer another."""
    return page.locator(".st-key-run button")
