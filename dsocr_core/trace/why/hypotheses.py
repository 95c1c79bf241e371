"""Hypotheses of why another engine writes another text: each a change of our own settings that reproduces it.

Facts with their sources: docs/why.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dsocr_core.models.resolution import MAX_TILES
from dsocr_core.reading.records import ModelInputs, OcrRequest, ngram_words

Group = Literal["ngram", "prompt", "views", "exif", "dtype"]
"""Subject that a hypothesis changes; two of a group exclude each other."""

CELLS = ("<td>", "</td>")
"""Whitelist of the vendor's vLLM scripts."""


@dataclass(frozen=True)
class Attempt:
    """Settings under which our engine is to read the page."""

    request: OcrRequest
    dtype: str
    """As `Settings.dtype`, resolved."""


@dataclass(frozen=True)
class Hypothesis:
    """One cause. `change` are fields of the request, or `dtype`."""

    name: str
    words: str
    """Words that follow "B is reproduced with"."""
    group: Group
    change: Mapping[str, Any] = field(hash=False)

    def applied(self, attempt: Attempt) -> Attempt:
        """The same reading with this change."""
        change = dict(self.change)
        dtype = change.pop("dtype", attempt.dtype)
        return Attempt(replace(attempt.request, **change), dtype)


def ngram_hypothesis(size: int, window: int = 0, whitelist: tuple[str, ...] = ()) -> Hypothesis:
    """B forbids other repetitions."""
    words = "no n-gram rule" if size == 0 else f"n-gram {ngram_words(size, window)}"
    name = "ngram-off" if size == 0 else f"ngram-{size}" + (f"-{window}" if window else "")
    change = {"no_repeat_ngram_size": size, "ngram_window": window, "ngram_whitelist": whitelist}
    return Hypothesis(name, words, "ngram", change)


def hypotheses() -> tuple[Hypothesis, ...]:
    """All of them, cheapest and likeliest first: a decode, then a prompt, then pixels, then number types."""
    return (
        ngram_hypothesis(30, 90, CELLS),
        ngram_hypothesis(20, 50, CELLS),
        ngram_hypothesis(35),
        ngram_hypothesis(20),
        ngram_hypothesis(0),
        ngram_hypothesis(40, 90, CELLS),
        Hypothesis("no-newline", "no newline after <image>", "prompt", {"template": "no_newline"}),
        Hypothesis("roles", "role markers around the prompt", "prompt", {"template": "roles"}),
        Hypothesis("tiles-6", "at most 6 tiles", "views", {"max_tiles": 6}),
        Hypothesis(
            "tiles-640",
            "tiles of 640 px beside a 1024 px view",
            "views",
            {"preset": "gundam", "tile_size": 640, "max_tiles": MAX_TILES},
        ),
        Hypothesis("no-tiles", "one 1024 px view, no tiles", "views", {"preset": "base"}),
        Hypothesis("tiles-32", "up to 32 tiles", "views", {"max_tiles": 32}),
        Hypothesis("no-exif", "no rotation by EXIF", "exif", {"exif": False}),
        Hypothesis("fp16", "float16", "dtype", {"dtype": "float16"}),
        Hypothesis("bf16", "bfloat16", "dtype", {"dtype": "bfloat16"}),
    )


def from_facts(inputs: ModelInputs, attempt: Attempt) -> tuple[Hypothesis, ...]:
    """Make hypotheses of what B itself says it did differently: these come before any guess."""
    found = []
    theirs = (inputs.no_repeat_ngram_size, inputs.ngram_window, inputs.ngram_whitelist)
    request = attempt.request
    if theirs != (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist):
        found.append(ngram_hypothesis(*theirs))
    if inputs.dtype != attempt.dtype and inputs.dtype in ("bfloat16", "float16", "float32"):
        found.append(Hypothesis(f"dtype-{inputs.dtype}", inputs.dtype, "dtype", {"dtype": inputs.dtype}))
    return tuple(found)


def applied(attempt: Attempt, chosen: Iterable[Hypothesis]) -> Attempt:
    for hypothesis in chosen:
        attempt = hypothesis.applied(attempt)
    return attempt
