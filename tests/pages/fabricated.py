"""Made-up pages and results of both roads, with every match state, for tests of the pages alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.records import (
    Box,
    BoxPair,
    CancelToken,
    Divergence,
    InputDifference,
    ModelInputs,
    Observer,
    OcrRequest,
    OcrResult,
    ParityReport,
    Road,
    StageTiming,
)
from dsocr_core.stages import Stage

STAGE_MS = {
    "ours": {
        Stage.PREPROCESS: 14.2, Stage.TOKENIZER: 0.41, Stage.SAM: 61.0, Stage.CLIP: 22.5, Stage.PROJECTOR: 1.4,
        Stage.VISION_FUSION: 0.62, Stage.PREFILL: 118.0, Stage.DECODE: 1042.0, Stage.POSTPROCESS: 1.9,
    },
    "vendor": {
        Stage.PREPROCESS: 16.0, Stage.SAM: 66.0, Stage.CLIP: 25.0, Stage.PROJECTOR: 1.6, Stage.PREFILL: 171.0,
        Stage.DECODE: 6120.0, Stage.POSTPROCESS: 12.0,
    },
}  # fmt: skip
HOSTILE = "<img src=x onerror=\"document.body.dataset.owned='yes'\"><script>document.body.dataset.owned='yes'</script>"


@dataclass(frozen=True)
class FabricatedComparison:
    """The shape of `dsocr_core.pipeline.Comparison`."""

    request: OcrRequest
    ours: OcrResult | None = None
    vendor: OcrResult | None = None
    errors: dict[Road, str] = field(default_factory=dict)
    recorded_at: str | None = None

    @functools.cached_property
    def report(self) -> ParityReport | None:
        return report_of(self.ours, self.vendor) if self.ours and self.vendor else None


def draw_page(path: Path, width: int, height: int, seed: int = 0) -> list[tuple[str, tuple[int, int, int, int], str]]:
    """Draw a page of text lines; returns (label, box, text) of its blocks."""
    page = Image.new("RGB", (width, height), (255, 255, 255))
    pen = ImageDraw.Draw(page)
    margin, y = width // 12, height // 16
    words = "the measured decode step reads about one gigabyte of weights for every token of a page".split()
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
    page.save(path)
    return blocks


def boxes_from(blocks: Sequence[tuple[str, tuple[int, int, int, int], str]]) -> list[Box]:
    return [
        Box(index, label, *corners, text=text, coordinates=tuple(map(float, corners)))
        for index, (label, corners, text) in enumerate(blocks)
    ]


def result_of(road: Road, request: OcrRequest, boxes: Sequence[Box], size: tuple[int, int]) -> OcrResult:
    text = "\n\n".join(
        f"<|ref|>{box.label}<|/ref|><|det|>[[{box.x1}, {box.y1}, {box.x2}, {box.y2}]]<|/det|>\n{box.text}" for box in boxes
    )
    words = text.split(" ")
    return OcrResult(
        road=road,
        request=request,
        image_size=size,
        text_raw=text,
        token_ids=tuple(1000 + len(word) for word in words),
        token_texts=tuple(f"{word} " for word in words),
        finish_reason="eos",
        inputs=ModelInputs(
            prompt_ids=tuple(range(114)), image_mask=((1, 111),), grid=(1, 1), global_shape=(1, 3, 640, 640),
            global_sha256="5f3a" * 16, tiles_shape=(1, 3, 640, 640), tiles_sha256="00aa" * 16,
            no_repeat_ngram_size=20, max_new_tokens=8192, attention="eager" if road == "vendor" else "sdpa",
            dtype="float32", rotary_dtype="float32",
        ),
        timings=tuple(StageTiming(stage, ms) for stage, ms in STAGE_MS[road].items()),
        environment={"device": "cpu"},
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _cached_boxes(text: str) -> tuple[Box, ...]:
    import re

    spans = list(re.finditer(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>\[\[(\d+), (\d+), (\d+), (\d+)\]\]<\|/det\|>\n", text))
    boxes = []
    for index, span in enumerate(spans):
        end = spans[index + 1].start() if index + 1 < len(spans) else len(text)
        corners = tuple(int(span[number]) for number in range(2, 6))
        boxes.append(Box(index, span[1], *corners, text=text[span.end() : end].strip(), coordinates=corners))
    return tuple(boxes)


def boxes_of(result: OcrResult) -> list[Box]:
    return list(_cached_boxes(result.text_raw))


def report_of(ours: OcrResult, vendor: OcrResult) -> ParityReport:
    """By index and label: enough for made-up pages."""
    left, right = boxes_of(ours), boxes_of(vendor)
    pairs: list[BoxPair] = []
    for a, b in zip(left, right, strict=False):
        shift = max(abs(a.x1 - b.x1), abs(a.y1 - b.y1)) / max(ours.image_size) * 100
        if shift > 8:
            pairs += [BoxPair("only_ours", a, None, None, None), BoxPair("only_vendor", None, b, None, None)]
        elif a.label != b.label:
            pairs.append(BoxPair("relabelled", a, b, 0.998, shift))
        else:
            pairs.append(BoxPair("moved" if shift else "matched", a, b, 0.71 if shift else 1.0, shift))
    same = ours.text_raw == vendor.text_raw
    first = next((i for i, (a, b) in enumerate(zip(ours.token_ids, vendor.token_ids, strict=False)) if a != b), None)
    divergence = (
        Divergence(first, ours.token_texts[first], vendor.token_texts[first], "".join(ours.token_texts[:first][-20:]), 1)
        if first is not None
        else None
    )
    return ParityReport(
        verdict="pass" if same else "fail",
        reasons=() if same else ("2 boxes of the vendor have no partner; at most 1 may.",),
        pairs=tuple(pairs),
        boxes_ours=len(left),
        boxes_vendor=len(right),
        boxes_matched=sum(pair.ours is not None and pair.vendor is not None for pair in pairs),
        max_coordinate_difference_percent=0.0 if same else 2.4,
        mean_coordinate_difference_percent=0.0 if same else 0.31,
        tokens_equal=divergence is None,
        first_divergence=divergence,
        character_error_rate=0.0 if same else 0.0123,
        inputs=(
            InputDifference("prompt ids", "114 ids", "114 ids", True),
            InputDifference("grid", "(1, 1)", "(1, 1)", True),
            InputDifference("global view SHA-256", "5f3a5f3a", "5f3a5f3a", True),
            InputDifference("attention", "sdpa", "eager", same),
        ),
    )


def disturbed(boxes: Sequence[Box]) -> list[Box]:
    """What another road might have read: one box moved, one relabelled, one elsewhere, one hostile text."""
    changed = list(boxes)
    for index, change in ((1, "move"), (2, "relabel"), (3, "elsewhere")):
        if index >= len(changed):
            break
        box = changed[index]
        if change == "move":
            step = (box.y2 - box.y1) // 4
            changed[index] = replace(box, x1=box.x1 + step, x2=box.x2 + step, y1=box.y1 + step, y2=box.y2 + step)
        elif change == "relabel":
            changed[index] = replace(box, label="sub_title", text=box.text + " " + HOSTILE)
        else:
            high = box.y2 - box.y1
            changed[index] = replace(box, y1=box.y1 + 2 * high, y2=box.y2 + 2 * high)
    return changed


class FabricatedPipeline:
    """Both roads from a table of blocks. `pace` scales the waiting; `fail` names a road that breaks once."""

    def __init__(self, blocks: dict[str, list], pace: float = 0.0, differ: Callable[[str], bool] = lambda _: False):
        self.blocks, self.pace, self.differ = blocks, pace, differ
        self.fail: Road | None = None
        self.kept: dict[tuple, OcrResult] = {}
        self.calls = 0
        self.closed = False

    def result(self, road: Road, request: OcrRequest) -> OcrResult:
        boxes = boxes_from(self.blocks[request.image.name])
        if road == "vendor" and self.differ(request.image.name):
            boxes = disturbed(boxes)
        with Image.open(request.image) as image:
            return result_of(road, request, boxes, image.size)

    def compare(
        self,
        request: OcrRequest,
        roads: Sequence[Road] = ("ours", "vendor"),
        observers: dict[Road, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> FabricatedComparison:
        self.calls += 1
        done: dict[Road, OcrResult] = {}
        errors: dict[Road, str] = {}
        for road in roads:
            try:
                done[road] = self._read(road, request, (observers or {}).get(road), cancel)
            except Cancelled:
                raise
            except DsocrError as error:
                errors[road] = str(error)
        for road, result in done.items():
            self.kept[road, request] = result
        return FabricatedComparison(request, done.get("ours"), done.get("vendor"), errors)

    def _read(self, road: Road, request: OcrRequest, observer: Observer | None, cancel: CancelToken | None) -> OcrResult:
        result = self.result(road, request)
        for stage, ms in STAGE_MS[road].items():
            if observer:
                observer.stage_started(stage)
            pieces = result.token_texts if stage is Stage.DECODE else ("",)
            for piece in pieces:
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                if self.pace:
                    time.sleep(ms / 1000 / len(pieces) * self.pace)
                if observer and piece:
                    observer.text(piece)
            if observer:
                observer.stage_ended(stage, ms)
            if road == self.fail and stage is Stage.PREFILL:
                self.fail = None
                raise DsocrError("the vendor's worker ended (signal 9); run again, it starts afresh")
        return result

    def recorded(self, request: OcrRequest, roads: Sequence[Road] = ("ours", "vendor")) -> FabricatedComparison | None:
        found = {road: self.kept.get((road, request)) for road in roads}
        if not found or any(result is None for result in found.values()):
            return None
        return FabricatedComparison(request, found.get("ours"), found.get("vendor"), recorded_at="2026-11-21T09:30:00+00:00")

    def close(self) -> None:
        self.closed = True


def make_samples(folder: Path) -> dict[str, list]:
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"invoice": (900, 1200), "letter_tall": (700, 1600), "slide_wide": (1500, 700), "receipt_small": (480, 600)}
    return {f"{name}.png": draw_page(folder / f"{name}.png", *size, seed) for seed, (name, size) in enumerate(sizes.items())}
