"""Two texts as runs of what both have and what one has alone, by words and their letters. Pure."""

from __future__ import annotations

import re
from typing import Literal

Change = Literal["same", "word", "letter"]
"""Standing of a run of text: both have it; both have it, in a word that differs; only this side has it."""
Runs = list[tuple[str, Change]]
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"\s+|[{_CJK}]|[^\s{_CJK}]+")
"""Blanks, a character of a script without blanks, or what stands between them."""
_MOST_LETTERS = 400
"""Characters of a stretch of words whose letters are compared: that is quadratic in them."""
_ALIKE = 0.5
"""Similarity of two words from which on their letters are compared; less alike, all of both is other."""


def text_difference(a: str, b: str) -> tuple[Runs, Runs]:
    """Both texts as runs, by words, then by the letters of words that differ; joined they give each text."""
    from rapidfuzz.distance import Levenshtein

    left, right = _WORD.findall(a), _WORD.findall(b)
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(left, right):
        before = "".join(left[step.src_start : step.src_end])
        after = "".join(right[step.dest_start : step.dest_end])
        if step.tag == "equal":
            runs[0].append((before, "same"))
            runs[1].append((after, "same"))
            continue
        for side, found in zip(runs, _letters(before, after), strict=True):
            side += [run for run in found if run[0]]
    return runs


def _letters(a: str, b: str) -> tuple[Runs, Runs]:
    """Two stretches that differ: the letters that each has alone, where both are short and alike."""
    from rapidfuzz.distance import Levenshtein

    if max(len(a), len(b)) > _MOST_LETTERS or Levenshtein.normalized_similarity(a, b) < _ALIKE:
        return [(a, "letter")], [(b, "letter")]
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(a, b):
        change: Change = "word" if step.tag == "equal" else "letter"
        runs[0].append((a[step.src_start : step.src_end], change))
        runs[1].append((b[step.dest_start : step.dest_end], change))
    return runs
