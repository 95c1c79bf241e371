"""Input parity from the record: what went into both models, line by line, as far as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsocr_core.history.record import RunRecord, described_backend
from dsocr_core.outputs.input_parity import (
    ATTENTION,
    DTYPE,
    GLOBAL_HASH,
    GRID,
    IMAGE,
    LIMIT,
    NGRAM,
    PAGE_SIZE,
    PRESET,
    PROMPT,
    PROMPT_TOKENS,
    TILES_HASH,
    compare_facts,
    input_facts,
)
from dsocr_core.parity_records import InputLine, input_line
from dsocr_core.records import PROMPTS, ModelInputs, TopTwo, ngram_words, published_ngram_size
from dsocr_core.review.page import PageSide
from dsocr_core.review.read_with import infer_of, is_told, policy_of


@dataclass(frozen=True)
class SideInputs:
    """What was recorded of one side of one page."""

    page: PageSide
    record: RunRecord
    inputs: ModelInputs | None = None
    prompt: str | None = None
    prompt_tokens: int | None = None
    grid: tuple[int, int] | None = None
    top_two: TopTwo | None = None
    """The two best logits of the step in which the sides diverge; None when not recorded."""

    @property
    def dtype(self) -> str | None:
        """Number type of the model, None when not recorded."""
        return self.inputs.dtype if self.inputs is not None else _facts(self).get(DTYPE)

    @property
    def limit(self) -> int | None:
        """Most new tokens, None when not recorded or not limited."""
        if self.inputs is not None:
            return self.inputs.max_new_tokens
        limit = infer_of(self.record, self.page.backend).get("max_new_tokens")
        return limit if isinstance(limit, int) else None

    @property
    def ngram_size(self) -> int | None:
        """Size of the n-grams that may not repeat, None when not recorded."""
        if self.inputs is not None:
            return self.inputs.no_repeat_ngram_size
        size = infer_of(self.record, self.page.backend).get("no_repeat_ngram_size")
        return size if isinstance(size, int) else None


def input_lines(a: SideInputs, b: SideInputs) -> tuple[InputLine, ...]:
    """One line a fact, as far as both sides recorded it. What only one recorded is not known, no difference.

    Another image file decides nothing where the pixels that went into the model are known to be equal.
    """
    around_a, around_b = _around(a), _around(b)
    model = compare_facts(_facts(a), _facts(b))
    state = {line.name: line.state for line in model}
    same_pixels = state[GLOBAL_HASH] == state[TILES_HASH] == "equal"
    around = (
        input_line(name, around_a[name], around_b[name], decides=name != IMAGE or not same_pixels)
        for name in (PROMPT, PRESET, PAGE_SIZE, IMAGE)
    )
    return (*around, *model)


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
    """What was recorded of the model's inputs, by line."""
    if side.inputs is not None:
        return input_facts(side.inputs)
    # A record's type and attention are those of one backend; its settings hold for all that are told them.
    own = side.page.backend in (None, described_backend(side.record.backends))
    ngram = limit = None
    if own or is_told(side.record, side.page.backend):
        infer = infer_of(side.record, side.page.backend)
        ngram, limit = _ngram_size(infer), infer.get("max_new_tokens")
    return {
        PROMPT_TOKENS: None if side.prompt_tokens is None else str(side.prompt_tokens),
        GRID: None if side.grid is None else f"{side.grid[0]} x {side.grid[1]}",
        NGRAM: None if ngram is None else _ngram_line(policy_of(side.record, side.page.backend), ngram),
        LIMIT: None if limit is None else str(limit),
        DTYPE: side.record.dtype if own else None,
        ATTENTION: side.record.attention if own else None,
    }


def _ngram_line(policy: Mapping[str, Any], size: Any) -> str:
    """As `ModelInputs.ngram_words`; window and whitelist are not known of older runs: as published."""
    window, exempt = policy.get("ngram_window", 0), policy.get("ngram_whitelist", ())
    return ngram_words(int(size), window, exempt) if window or exempt else str(size)


def _ngram_size(infer: Mapping[str, Any]) -> Any:
    """The n-gram size of a run of this project; its own where the settings left it to the published code."""
    if "no_repeat_ngram_size" not in infer:
        return None
    chosen = infer["no_repeat_ngram_size"]
    return published_ngram_size(bool(infer.get("eval_mode"))) if chosen is None else chosen


def _setting(record: RunRecord, *names: str) -> Any:
    """A setting of a run of this project; other programs name theirs differently."""
    value: Any = record.settings if record.source == "dsocr" else None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
