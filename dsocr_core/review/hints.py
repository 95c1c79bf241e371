"""Likely causes of a page's differences, where there is one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dsocr_core.reading import input_parity as inputs
from dsocr_core.reading.margins import margin_words
from dsocr_core.reading.markup import SCALE
from dsocr_core.reading.parity_records import NOT_KNOWN, BoxPair, Divergence, InputLine, ParityReport
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.page import Cause, Difference, Hint, shared

OTHER_SCALE = 1000
_RATIO = OTHER_SCALE / SCALE
_FEWEST_COORDINATES = 8
_EVIDENCE = 3.0
"""Nats by which the scale must explain the coordinates better than a shift of the same size."""

_LINES: dict[str, tuple[Cause, str]] = {
    inputs.PROMPT: ("prompt", "the prompts differ: {a} and {b}"),
    inputs.IMAGE: ("image", "the image files differ, so nothing after them can agree"),
    inputs.PRESET: ("preset", "the presets differ: {a} and {b}"),
    inputs.GRID: ("grid", "the page was cut into other tiles: {a} and {b}"),
    inputs.PROMPT_IDS: ("prompt", "the prompts became other tokens"),
    inputs.NGRAM: (
        "ngram",
        "the n-gram rule differs: size {a} and {b}; repeated phrases are cut differently",
    ),
    inputs.DTYPE: ("dtype", "the number types differ: {a} and {b}; near ties of logits fall differently"),
    inputs.ROTARY: ("rotary", "the rotary frequencies were rounded differently: {a} and {b}"),
    inputs.ATTENTION: (
        "attention",
        "the attention implementations differ: {a} and {b}; near ties may fall differently",
    ),
}
"""Lines of input parity that explain differences, a cause before what follows from it: another preset makes
other image tokens, and these another prompt."""

_WEAK: frozenset[Cause] = frozenset({"dtype", "rotary", "attention"})


def hints(
    a: OcrResult, b: OcrResult, report: ParityReport, differences: Iterable[Difference]
) -> tuple[Hint, ...]:
    """Likely causes, the strongest first; none for a page that does not differ."""
    found = [item for item in differences if not shared(item) and item.kind != "inputs"]
    if not found and report.tokens_equal is not False:
        return ()
    by_name = {line.name: line for line in report.inputs if line.state == "differs"}
    causes: dict[Cause, Hint] = {}

    def add(cause: Cause, words: str) -> None:
        causes.setdefault(cause, Hint(cause, words))

    if _swapped(a, b):
        add(
            "exif",
            f"the page is {_size(a)} in A and {_size(b)} in B: one side did not apply the EXIF orientation",
        )
    for name, (cause, words) in _LINES.items():
        if name in by_name and cause not in _WEAK:
            add(cause, words.format(a=_short(by_name[name].a), b=_short(by_name[name].b)))
    if (side := scaled_side(report.pairs)) is not None:
        other = "B" if side == "A" else "A"
        add(
            "scale",
            f"all coordinates of {side} are {_RATIO:.4f} times those of {other}: {side} counts a side of the "
            f"page in {OTHER_SCALE} parts, {other} in {SCALE}",
        )
    for item in found:
        if item.kind == "loop":
            add("loop", f"{item.words}: from there on nothing can agree")
        if item.kind == "truncated":
            add("length", _length_words(item, by_name.get(inputs.LIMIT)))
    if (divergence := report.first_divergence) is not None and divergence.margins is not None:
        add("tie" if divergence.margins.tie else "not a tie", _tie_words(divergence))
    for name, (cause, words) in _LINES.items():
        if name in by_name and cause in _WEAK:
            add(cause, words.format(a=_short(by_name[name].a), b=_short(by_name[name].b)))
    return tuple(causes.values())


def _tie_words(divergence: Divergence) -> str:
    assert divergence.margins is not None
    what = margin_words(divergence.margins)
    means = "rounding can explain it" if divergence.margins.tie else "rounding does not explain it"
    return f"the tokens diverge at step {divergence.index:,}, {what}: {means}"


def _length_words(item: Difference, limits: InputLine | None) -> str:
    if limits is None:
        return item.words
    return f"{item.words}; the limits differ: {limits.a} and {limits.b}"


def _short(text: str | None) -> str:
    words = " ".join((text or NOT_KNOWN).split())
    return words if len(words) <= 80 else f"{words[:79]}…"


def _swapped(a: OcrResult, b: OcrResult) -> bool:
    (width, height), other = a.image_size, b.image_size
    return bool(width and height) and (height, width) == other and width != height


def _size(result: OcrResult) -> str:
    width, height = result.image_size
    return f"{width} x {height}"


def scaled_side(pairs: Iterable[BoxPair]) -> str | None:
    """ "A" or "B": the side whose coordinates count to 1000 where the other's count to 999; None for neither.

    Whole coordinates differ by at most one then, the more often the larger they are. Counted against a shift
    that hits every coordinate alike, the scale has to be likelier by 3 nats.
    """
    both = [(pair.a.coordinates, pair.b.coordinates) for pair in pairs if pair.a and pair.b]
    if len(both) * 4 < _FEWEST_COORDINATES:
        return None
    a, b = (np.array(side, np.float64).ravel() for side in zip(*both, strict=True))  # (4 N,)
    if _is_scaled(b, a):
        return "A"
    return "B" if _is_scaled(a, b) else None


def _is_scaled(small: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
               large: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bool:  # fmt: skip
    difference, expected = large - small, small / SCALE
    if not difference.any() or (np.abs(difference - expected) > 1).any():
        return False
    if np.isin(difference, (0.0, 1.0)).all():
        p, q = expected.clip(0.02, 0.98), float(np.mean(difference).clip(0.02, 0.98))
        ones = difference == 1
        by_scale = np.log(np.where(ones, p, 1 - p)).sum()
        by_shift = np.log(np.where(ones, q, 1 - q)).sum()
        return bool(by_scale - by_shift >= _EVIDENCE)
    residue = np.square(difference - expected).sum()
    return bool(residue <= 0.25 * np.square(difference - difference.mean()).sum())
