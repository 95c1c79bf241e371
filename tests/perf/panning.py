"""Time the viewer in a real Chromium: frames while a page is dragged, and a click until its box is selected.

    python -m tests.perf.panning

A page of 5,000 boxes and one of 20,000 characters with 400 differences. A frame is the time between two
calls of `requestAnimationFrame`, its "work" what the viewer's drawing takes of it, which a busy machine
delays less. The last line is JSON; the exit code is 1 above a bound.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.support.browser_driver import Viewer, serve
from tests.support.browsers import CHROMIUM_ARGUMENTS, find_chromium
from tests.support.paths import APPS

BOXES, CHARACTERS, DIFFERENCES = 5000, 20_000, 400
FRAME_MS, SELECT_MS = 17.0, 100.0
"""Most that the median frame, and a selection, may take: 60 frames a second."""
_PAN = """root => new Promise(done => {
    const stage = root.querySelector(".stage"), at = stage.getBoundingClientRect();
    const x = at.x + at.width / 2, y = at.y + at.height / 2;
    const send = (kind, dx) => stage.dispatchEvent(new PointerEvent(kind, {
        pointerId: 1, button: 0, buttons: 1, clientX: x + dx, clientY: y, bubbles: true }));
    stage.setPointerCapture = () => {};
    send("pointerdown", 0);
    const frames = [], work = [];
    let last = null, step = 0;
    const frame = (now) => {
        if (last !== null) frames.push(now - last);
        last = now;
        if (frames.length === 120) { send("pointerup", 0); done({ frames, work }); return; }
        work.push(performance.now() - now);  // the viewer asked for this frame first, and has drawn
        step += 1;
        send("pointermove", 60 * Math.sin(step / 6));
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
})"""
_SELECT = """(root, index) => new Promise(done => {
    const { x, y } = root.locate("a", index);
    const stage = root.querySelector(".stage"), before = root.dataset.selected;
    stage.setPointerCapture = () => {};
    const began = performance.now();
    for (const kind of ["pointerdown", "pointerup"]) stage.dispatchEvent(new PointerEvent(kind, {
        pointerId: 1, button: 0, clientX: x, clientY: y, bubbles: true }));
    const look = () =>
        root.dataset.selected !== before ? done(performance.now() - began) : requestAnimationFrame(look);
    look();
})"""


def measure(page: Page, url: str, sample: str, view: str) -> dict[str, float]:
    """Medians of one page, ms: a frame, the work of one and its 95th percentile, a selection."""
    page.goto(f"{url}/?page={sample}")
    page.locator(f'.viewer[data-image^="{sample}:"]:not([data-b="0"])').wait_for(timeout=120_000)
    viewer = Viewer(page)
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=120_000)
    if view == "texts":
        page.keyboard.press("t")
        viewer.wait(texts="true")
    for _ in range(2):  # the first pass warms up
        frames = viewer.root.evaluate(_PAN)
    work = sorted(frames["work"])
    selected = [viewer.root.evaluate(_SELECT, index) for index in range(3, 9)][1:]
    return {
        "frame_ms": statistics.median(frames["frames"]), "work_ms": statistics.median(work),
        "work_p95_ms": work[int(len(work) * 0.95)], "select_ms": statistics.median(selected),
    }  # fmt: skip


def main() -> int:
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="dsocr-panning-") as folder,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=[*CHROMIUM_ARGUMENTS]) as chromium,
    ):
        given = [str(Path(folder) / "pages"), *map(str, (BOXES, CHARACTERS, DIFFERENCES))]
        with serve(APPS / "fabricated_app.py", Path(folder) / "log", *given) as server:
            for sample, view in (("many", "boxes"), ("long", "boxes"), ("long", "texts")):
                page = chromium.new_page(viewport={"width": 1440, "height": 900})
                name = f"{sample}, {view}"
                found[name] = measure(page, server.url, sample, view)
                page.close()
                print(name, {key: round(value, 1) for key, value in found[name].items()}, file=sys.stderr)
    missed = [n for n, row in found.items() if row["frame_ms"] > FRAME_MS or row["select_ms"] > SELECT_MS]
    print(json.dumps({"pages": found, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
