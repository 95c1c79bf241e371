"""Input parity from the record: what went into both models, line by line, as far as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsocr_core.history.record import RunRecord
from dsocr_core.outputs.parity import compare_inputs
from dsocr_core.records import PROMPTS, InputDifference, ModelInputs, TopTwo, published_ngram_size
from dsocr_core.review.page import InputLine, Mark, PageSide

UNKNOWN = "not recorded"
STAND_IN = ModelInputs(
    prompt_ids=(),
    image_mask=(),
    grid=(1, 1),
    global_shape=(),
    global_sha256="",
    tiles_shape=(),
    tiles_sha256="",
    no_repeat_ngram_size=0,
    max_new_tokens=0,
    attention="",
    dtype="",
    rotary_dtype="",
)
"""Fills the place of inputs that were not recorded, where a result must have some. Never shown."""

PROMPT, PRESET, PAGE_SIZE, IMAGE = "prompt", "preset", "page size, EXIF applied", "image SHA-256"
GRID, NGRAM, DTYPE, ROTARY, ATTENTION, LIMIT = (
    "grid", "n-gram size", "dtype", "rotary frequencies", "attention", "token limit",
)  # fmt: skip
_NAMES = {line.name: line.decides for line in compare_inputs(STAND_IN, STAND_IN)}


@dataclass(frozen=True)
class SideInputs:
    """What is known of one side of one page."""

    page: PageSide
    record: RunRecord
    inputs: ModelInputs | None = None
    prompt: str | None = None
    prompt_tokens: int | None = None
    grid: tuple[int, int] | None = None
    top_two: TopTwo | None = None
    """The two best logits of the step in which the sides' tokens part; None when not recorded."""

    @property
    def dtype(self) -> str | None:
        """Number type of the model, None when not known."""
        return self.inputs.dtype if self.inputs is not None else _facts(self).get(DTYPE)

    @property
    def limit(self) -> int | None:
        """Most new tokens, None when not known or not limited."""
        if self.inputs is not None:
            return self.inputs.max_new_tokens
        limit = _setting(self.record, "infer", "max_new_tokens")
        return limit if isinstance(limit, int) else None


def input_lines(a: SideInputs, b: SideInputs, compared: tuple[InputDifference, ...]) -> tuple[InputLine, ...]:
    """One line a fact; "not recorded" where a side does not know it, which is no difference.

    `compared` is the parity report's comparison of both inputs, where both were recorded.
    """
    lines = [
        _line(name, known_a.get(name), known_b.get(name))
        for known_a, known_b in [(_around(a), _around(b))]
        for name in (PROMPT, PRESET, PAGE_SIZE, IMAGE)
    ]
    if a.inputs is not None and b.inputs is not None:
        return (*lines, *map(_compared, compared))
    facts_a, facts_b = _facts(a), _facts(b)
    return (*lines, *(_line(name, facts_a.get(name), facts_b.get(name)) for name in _NAMES))


def _compared(line: InputDifference) -> InputLine:
    mark: Mark = "equal" if line.equal else "different" if line.decides else "shown"
    return InputLine(line.name, line.ours, line.vendor, mark)


def _line(name: str, a: str | None, b: str | None) -> InputLine:
    mark: Mark = "not recorded"
    if a is not None and b is not None:
        mark = "equal" if a == b else "different" if _NAMES.get(name, True) else "shown"
    return InputLine(name, UNKNOWN if a is None else a, UNKNOWN if b is None else b, mark)


def _around(side: SideInputs) -> dict[str, str | None]:
    """Facts beside the model's own inputs."""
    page = side.page
    prompt = side.prompt
    if prompt is None and isinstance(name := _setting(side.record, "prompt"), str):
        prompt = PROMPTS.get(name, name)
    return {
        PROMPT: prompt,
        PRESET: page.preset,
        PAGE_SIZE: f"{page.width} x {page.height}" if page.width and page.height else None,
        IMAGE: page.sha256,
    }


def _facts(side: SideInputs) -> Mapping[str, str | None]:
    """What is known of the model's inputs, named as `compare_inputs` names it."""
    if side.inputs is not None:
        return {line.name: line.ours for line in compare_inputs(side.inputs, side.inputs)}
    # A record's type and attention are those of our road, or of its only one.
    own = side.page.road == "ours" or len(side.record.roads) == 1
    ngram, limit = _ngram_size(side.record), _setting(side.record, "infer", "max_new_tokens")
    return {
        "prompt tokens": None if side.prompt_tokens is None else str(side.prompt_tokens),
        GRID: None if side.grid is None else f"{side.grid[0]} x {side.grid[1]}",
        NGRAM: None if ngram is None else str(ngram),
        LIMIT: None if limit is None else str(limit),
        DTYPE: side.record.dtype if own else None,
        ATTENTION: side.record.attention if own else None,
    }


def _ngram_size(record: RunRecord) -> Any:
    """The n-gram size of a run of this project; its own where the settings left it to the published code."""
    infer = _setting(record, "infer")
    if not isinstance(infer, dict) or "no_repeat_ngram_size" not in infer:
        return None
    chosen = infer["no_repeat_ngram_size"]
    return published_ngram_size(bool(infer.get("eval_mode"))) if chosen is None else chosen


def _setting(record: RunRecord, *names: str) -> Any:
    """A setting of a run of this project; other programs name theirs differently."""
    value: Any = record.settings if record.source == "dsocr" else None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
