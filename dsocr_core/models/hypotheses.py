"""Ways in which other engines read a page otherwise than published. A model's own are in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Group = Literal["ngram", "prompt", "views", "exif", "dtype", "window", "rotary", "encoder", "pages"]
"""Subject that a hypothesis changes; two of a group exclude each other."""

CELLS = ("<td>", "</td>")
"""Whitelist of the vendor's vLLM scripts."""


@dataclass(frozen=True)
class Hypothesis:
    """One cause. `change` are fields of the request, of the altered model, or `dtype`."""

    name: str
    words: str
    """Words that follow "B is reproduced with"."""
    group: Group
    change: Mapping[str, Any] = field(hash=False)


def ngram_hypothesis(size: int, window: int = 0, whitelist: tuple[str, ...] = ()) -> Hypothesis:
    """B forbids other repetitions."""
    words = f"n-gram {size}" + (f", window {window}" if window else "") if size else "no n-gram rule"
    name = "ngram-off" if size == 0 else f"ngram-{size}" + (f"-{window}" if window else "")
    change = {"no_repeat_ngram_size": size, "ngram_window": window, "ngram_whitelist": whitelist}
    return Hypothesis(name, words, "ngram", change)


ROLES = Hypothesis("roles", "role markers around the prompt", "prompt", {"template": "roles"})
NO_NEWLINE = Hypothesis("no-newline", "no newline after <image>", "prompt", {"template": "no_newline"})

OF_ALL = (
    Hypothesis("no-exif", "no rotation by EXIF", "exif", {"exif": False}),
    Hypothesis("fp16", "float16", "dtype", {"dtype": "float16"}),
    Hypothesis("bf16", "bfloat16", "dtype", {"dtype": "bfloat16"}),
)
"""Those that have nothing to do with a model, the last to be tried."""
