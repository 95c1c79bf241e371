"""Made-up pages and results of both backends, with every match state, for tests of the pages alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.base.errors import Cancelled
from dsocr_core.models.stages import Stage
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import (
    SIDES,
    BackendName,
    CancelToken,
    Observer,
    OcrRequest,
    OcrResult,
    Side,
)
from tests.support.results import make_result, markup

BACKENDS: dict[Side, BackendName] = {"a": "eager", "b": "vendor"}
SIZES = {
    "invoice": (900, 1200), "letter_tall": (700, 1600), "slide_wide": (1500, 700), "receipt_small": (480, 600)
}  # fmt: skip
WORDS = ("the", "measured", "decode", "step", "reads", "a", "gigabyte", "of", "weights", "for", "a", "token")
_OWN = "document.body.dataset.owned='yes'"
HOSTILE = f'<img src=x onerror="{_OWN}"><script>{_OWN}</script>'
CANCELLED = "a reading was cancelled"
"""What such a pipeline prints then, for the server's log."""
Block = tuple[str, tuple[int, int, int, int], str]
"""Label, box in pixels, text."""


def draw_page(path: Path, width: int, height: int, columns: int = 1, rows: int = 9) -> list[Block]:
    """Draw a page of text blocks in a grid."""
    page = Image.new("RGB", (width, height), "white")
    pen, blocks = ImageDraw.Draw(page), list[Block]()
    across, down = width // columns, height // rows
    font = ImageFont.load_default(down // 6)
    for number in range(columns * rows):
        x, y = number % columns * across, number // columns * down
        box = (x + across // 12, y + down // 6, x + across - across // 12, y + down - down // 6)
        text = "\n".join([" ".join(WORDS[(number + at) % len(WORDS)] for at in range(4 // columns + 1))] * 3)
        pen.multiline_text(box[:2], text, "black", font)
        blocks.append(("text" if number % 4 else "title", box, text))
    page.save(path, compress_level=1)
    return blocks


def make_samples(folder: Path) -> dict[str, list[Block]]:
    """Draw the samples; returns their blocks by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    return {f"{name}.png": draw_page(folder / f"{name}.png", *size) for name, size in SIZES.items()}


def result_of(
    backend: BackendName, request: OcrRequest, blocks: Sequence[Block], size: tuple[int, int]
) -> OcrResult:
    """What a model would write for these blocks on a page of that size."""
    scaled = [
        (label, [round(value * 999 / size[axis % 2]) for axis, value in enumerate(box)], text)
        for label, box, text in blocks
    ]
    attention = "eager" if backend == "vendor" else "sdpa"
    inputs = {"prompt_ids": tuple(range(114)), "image_mask": ((1, 111),), "attention": attention}
    made = make_result(markup(scaled), backend, image_size=size, **inputs)
    return replace(made, request=request, environment={"device": "cpu"})


def disturbed(blocks: Sequence[Block]) -> list[Block]:
    """What another backend might have read: block 1 moved, 2 relabelled with hostile text, 3 elsewhere."""
    changed = list(blocks)
    label, (x1, y1, x2, y2), text = changed[1]
    step = (y2 - y1) // 2
    changed[1] = (label, (x1 + step, y1 + step, x2 + step, y2 + step), text)
    changed[2] = ("sub_title", changed[2][1], f"{changed[2][2]} {HOSTILE}")
    label, (x1, y1, x2, y2), text = changed[3]
    changed[3] = (label, (x1 // 8, y1, x1 - 2, y2), text)
    return changed


class FabricatedPipeline:
    """Both sides from a table of blocks; each stage takes `pace` of its time."""

    def __init__(
        self,
        blocks: Mapping[str, Sequence[Block]],
        pace: float = 0.0,
        differ: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.blocks, self.pace, self.differ = blocks, pace, differ
        self.results: dict[tuple[Side, OcrRequest], OcrResult] = {}

    def result(self, side: Side, request: OcrRequest) -> OcrResult:
        blocks = self.blocks[request.image.name]
        if side == "b" and self.differ(request.image.name):
            blocks = disturbed(blocks)
        with Image.open(request.image) as image:
            return result_of(BACKENDS[side], request, blocks, image.size)

    def record(self, request: OcrRequest, sides: Sequence[Side] = SIDES) -> None:
        """Have results of an earlier run."""
        self.results |= {(side, request): self.result(side, request) for side in sides}

    def check(self, sides: Sequence[Side]) -> None: ...

    def compare(
        self,
        request: OcrRequest,
        sides: Sequence[Side] = SIDES,
        observers: Mapping[Side, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: object = None,
    ) -> Comparison:
        done = {side: self._read(side, request, (observers or {}).get(side), cancel) for side in sides}
        self.results |= {(side, request): result for side, result in done.items()}
        return Comparison(request, done.get("a"), done.get("b"))

    def _read(
        self, side: Side, request: OcrRequest, observer: Observer | None, cancel: CancelToken | None
    ) -> OcrResult:
        result = self.result(side, request)
        for stage, ms in ((timing.stage, timing.milliseconds) for timing in result.timings):
            if observer:
                observer.stage_started(stage)
            pieces = result.token_texts if stage == Stage.DECODE else ("",)
            for piece in pieces:
                if cancel is not None and cancel.is_set():
                    print(CANCELLED, flush=True)
                    raise Cancelled
                if self.pace:
                    time.sleep(ms / 1000 / len(pieces) * self.pace)
                if observer and piece:
                    observer.text(piece)
            if observer:
                observer.stage_ended(stage, ms)
        return result

    def keep(self, comparison: Comparison, cancelled: bool, machine: object) -> str:
        return ""

    def recorded(self, request: OcrRequest, sides: Sequence[Side] = SIDES) -> Comparison | None:
        found = {side: self.results.get((side, request)) for side in sides}
        if not all(found.values()):
            return None
        return Comparison(request, found.get("a"), found.get("b"), recorded_at="2026-11-21T09:30:00+00:00")

    def close(self) -> None: ...
