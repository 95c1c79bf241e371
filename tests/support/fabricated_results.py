"""Made-up pages and results of both backends, with every match state, for tests of the pages alone."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
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
    StageTiming,
)
from tests.support.results import make_result, markup

STAGE_MS = {
    "eager": {
        Stage.PREPROCESS: 14.2, Stage.TOKENIZER: 0.41, Stage.SAM: 61.0, Stage.CLIP: 22.5,
        Stage.PROJECTOR: 1.4, Stage.VISION_FUSION: 0.62, Stage.PREFILL: 118.0, Stage.DECODE: 1042.0,
        Stage.POSTPROCESS: 1.9,
    },
    "vendor": {
        Stage.PREPROCESS: 16.0, Stage.SAM: 66.0, Stage.CLIP: 25.0, Stage.PROJECTOR: 1.6, Stage.PREFILL: 171.0,
        Stage.DECODE: 6120.0, Stage.POSTPROCESS: 12.0,
    },
}  # fmt: skip
WORDS = "the measured decode step reads about one gigabyte of weights for every token of a page"
_OWN = "document.body.dataset.owned='yes'"
HOSTILE = f'<img src=x onerror="{_OWN}"><script>{_OWN}</script>'
Block = tuple[str, tuple[int, int, int, int], str]


def draw_page(path: Path, width: int, height: int, seed: int = 0) -> list[Block]:
    """Draw a page of text lines; returns (label, box, text) of its blocks."""
    png, blocks = _drawn(width, height, seed)
    path.write_bytes(png)
    return list(blocks)


@cache
def _drawn(width: int, height: int, seed: int) -> tuple[bytes, tuple[Block, ...]]:
    """The page as PNG, drawn once a process: to draw and to compress it takes longer than most tests."""
    page = Image.new("RGB", (width, height), (255, 255, 255))
    pen = ImageDraw.Draw(page)
    margin, y = width // 12, height // 16
    words = tuple(WORDS.split())
    blocks = []
    for number in range(9):
        title = number % 4 == 0
        size = max(width // (22 if title else 38), 12)
        font = ImageFont.load_default(size)
        count = 4 if title else 9
        line = " ".join(words[(seed + number * 3 + index) % len(words)] for index in range(count))
        lines = [line] if title else [line] * 3
        top = y
        for text in lines:
            while pen.textlength(text, font) > width - 2 * margin:
                text = text.rsplit(" ", 1)[0]
            pen.text((margin, y), text, (20, 24, 30), font)
            y += int(size * 1.35)
        if y > height * 0.93:
            break
        label = "title" if title else ("table" if number == 6 else "text")
        blocks.append((label, (margin, top, width - margin, y), "\n".join(lines)))
        y += size
    png = BytesIO()
    page.save(png, "PNG")
    return png.getvalue(), tuple(blocks)


def result_of(
    backend: BackendName, request: OcrRequest, blocks: Sequence[Block], size: tuple[int, int]
) -> OcrResult:
    """What a model would write for these blocks on a page of that size."""
    scaled = [
        (label, [round(value * 999 / size[axis % 2]) for axis, value in enumerate(corners)], text)
        for label, corners, text in blocks
    ]
    text = markup(scaled)
    words = text.split(" ")
    ids = tuple(zlib.crc32(word.encode()) % 30_000 for word in words)
    inputs = {"prompt_ids": tuple(range(114)), "image_mask": ((1, 111),)}
    attention = "eager" if backend == "vendor" else "sdpa"
    made = make_result(text, backend, image_size=size, token_ids=ids, attention=attention, **inputs)
    return replace(
        made, request=request, token_texts=tuple(f"{word} " for word in words), environment={"device": "cpu"},
        timings=tuple(StageTiming(stage, ms) for stage, ms in STAGE_MS[backend].items()),
    )  # fmt: skip


def disturbed(blocks: Sequence[Block]) -> list[Block]:
    """What another backend might have read: block 1 moved, 2 relabelled with hostile text, 3 elsewhere."""
    changed = list(blocks)
    label, (x1, y1, x2, y2), text = changed[1]
    step = (y2 - y1) // 2
    changed[1] = (label, (x1 + step, y1 + step, x2 + step, y2 + step), text)
    label, corners, text = changed[2]
    changed[2] = ("sub_title", corners, f"{text} {HOSTILE}")
    label, (x1, y1, x2, y2), text = changed[3]
    changed[3] = (label, (x1 // 8, y1, x1 - 2, y2), text)
    return changed


BACKENDS: dict[Side, BackendName] = {"a": "eager", "b": "vendor"}
CANCELLED = "a reading was cancelled"
"""What such a pipeline prints then, for the server's log."""


class FabricatedPipeline:
    """Both sides from a table of blocks. `pace` scales the waiting."""

    def __init__(
        self, blocks: dict[str, list], pace: float = 0.0, differ: Callable[[str], bool] = lambda _: False
    ):
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
        for side in sides:
            self.results[side, request] = self.result(side, request)

    def check(self, sides: Sequence[Side]) -> None: ...

    def compare(
        self,
        request: OcrRequest,
        sides: Sequence[Side] = SIDES,
        observers: dict[Side, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Comparison:
        done: dict[Side, OcrResult] = {}
        for side in sides:
            try:
                done[side] = self._read(side, request, (observers or {}).get(side), cancel)
            except Cancelled:
                print(CANCELLED, flush=True)
                raise
        self.results |= {(side, request): result for side, result in done.items()}
        return Comparison(request, done.get("a"), done.get("b"))

    def _read(
        self, side: Side, request: OcrRequest, observer: Observer | None, cancel: CancelToken | None
    ) -> OcrResult:
        result = self.result(side, request)
        for stage, ms in STAGE_MS[result.backend].items():
            if observer:
                observer.stage_started(stage)
            pieces = result.token_texts if stage == Stage.DECODE else ("",)
            for piece in pieces:
                if cancel is not None and cancel.is_set():
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
        if not found or any(result is None for result in found.values()):
            return None
        return Comparison(request, found.get("a"), found.get("b"), recorded_at="2026-11-21T09:30:00+00:00")

    def close(self) -> None: ...


def make_samples(folder: Path) -> dict[str, list]:
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        "invoice": (900, 1200), "letter_tall": (700, 1600), "slide_wide": (1500, 700),
        "receipt_small": (480, 600),
    }  # fmt: skip
    return {
        f"{name}.png": draw_page(folder / f"{name}.png", *size, seed)
        for seed, (name, size) in enumerate(sizes.items())
    }


def draw_grid(path: Path, count: int) -> list[Block]:
    """A page of many small blocks in a grid."""
    columns, side = 25, 60
    size = (columns * side, -(-count // columns) * side)
    page = Image.new("RGB", size, (255, 255, 255))
    pen = ImageDraw.Draw(page)
    blocks: list[Block] = []
    for number in range(count):
        x, y = number % columns * side, number // columns * side
        pen.text((x + 6, y + 20), f"{number}", (20, 24, 30))
        blocks.append(
            ("text" if number % 3 else "title", (x + 3, y + 3, x + side - 3, y + side - 3), f"cell {number}")
        )
    page.save(path)
    return blocks
