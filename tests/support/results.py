"""Results made by hand, for tests of everything behind the backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import BackendName, ModelInputs, OcrRequest, OcrResult, StageTiming

INPUTS = ModelInputs(
    prompt_ids=(0, 5, 5, 5, 7), image_mask=((1, 3),), grid=(1, 1), global_shape=(1, 3, 640, 640),
    global_sha256="aa", tiles_shape=(1, 3, 640, 640), tiles_sha256="bb", no_repeat_ngram_size=20,
    max_new_tokens=8192, attention="eager", dtype="float32", rotary_dtype="float32",
)  # fmt: skip
_MS = {
    Stage.PREPROCESS: 1.0, Stage.TOKENIZER: 2.0, Stage.SAM: 10.0, Stage.CLIP: 20.0, Stage.PROJECTOR: 3.0,
    Stage.VISION_FUSION: 4.0, Stage.PREFILL: 50.0, Stage.DECODE: 100.0, Stage.POSTPROCESS: 5.0,
}  # fmt: skip
TIMINGS = tuple(StageTiming(stage, milliseconds) for stage, milliseconds in _MS.items())

Block = tuple[str, Sequence[float], str]
"""Label, box in parts of 999, text."""


def markup(blocks: Sequence[Block]) -> str:
    """The text that a model writes for these blocks."""
    return "\n\n".join(
        f"<|ref|>{label}<|/ref|><|det|>[{list(box)}]<|/det|>\n{text}" for label, box, text in blocks
    )


def of_pages(result: OcrResult, *more_sizes: tuple[int, int]) -> OcrResult:
    """The result as one of several pages that Unlimited-OCR read in one prompt."""
    more = tuple(Path(f"page-{number}.png") for number in range(2, 2 + len(more_sizes)))
    prompt = "<image>Multi page parsing."
    request = replace(result.request, model="unlimited_ocr", preset="base", prompt=prompt, more=more)
    return replace(result, request=request, more_sizes=more_sizes)


def make_result(
    text: str = "<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# Hello\n",
    backend: BackendName = "eager",
    image: Path = Path("page.png"),
    image_size: tuple[int, int] = (1000, 800),
    token_ids: tuple[int, ...] | None = None,
    **inputs: Any,
) -> OcrResult:
    """A result whose tokens are the characters of its text unless told otherwise."""
    return OcrResult(
        backend=backend,
        request=OcrRequest(image, preset="small"),
        image_size=image_size,
        text_raw=text,
        token_ids=tuple(ord(letter) for letter in text) if token_ids is None else token_ids,
        token_texts=tuple(text) if token_ids is None else (),
        finish_reason="eos",
        inputs=replace(INPUTS, **inputs),
        timings=TIMINGS,
        environment={"engine": "eager"},
    )
