"""Likely causes of a page's differences, the surest first, none that contradicts another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsocr_core.base.formatting import shortened
from dsocr_core.reading import input_parity as inputs
from dsocr_core.reading.margins import margin_words
from dsocr_core.reading.parity_records import (
    NOT_KNOWN,
    SETTINGS,
    Cause,
    CauseName,
    Difference,
    Divergence,
    InputLine,
)
from dsocr_core.reading.records import OcrResult

_LINES: Mapping[str, tuple[CauseName, str]] = {
    inputs.PROMPT: ("prompt", "the prompts differ: {a} and {b}"),
    inputs.IMAGE: ("image", "the image files differ, so nothing after them can agree"),
    inputs.PRESET: ("preset", "the presets differ: {a} and {b}"),
    inputs.GRID: ("grid", "the page was cut into other tiles: {a} and {b}"),
    inputs.PROMPT_IDS: ("prompt", "the prompts became other tokens"),
    inputs.NGRAM: (
        "ngram",
        "the n-gram rule differs: size {a} and {b}; repeated phrases are cut differently",
    ),
    inputs.LIMIT: ("length", "the token limits differ: {a} and {b}"),
    inputs.DTYPE: ("dtype", "the number types differ: {a} and {b}; near ties of logits fall differently"),
    inputs.ROTARY: ("rotary", "the rotary frequencies were rounded differently: {a} and {b}"),
    inputs.ATTENTION: (
        "attention",
        "the attention implementations differ: {a} and {b}; near ties may fall differently",
    ),
}
"""Lines of input parity that explain differences, a cause before what follows from it."""
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    inputs.GRID: (inputs.PRESET, inputs.IMAGE),
    inputs.PROMPT_IDS: (inputs.PROMPT, inputs.PRESET, inputs.IMAGE, inputs.GRID),
    inputs.ROTARY: (inputs.DTYPE,),
}
"""Lines that say nothing more where one of these differs."""
_ROUNDING = (inputs.DTYPE, inputs.ROTARY)


def causes(
    a: OcrResult,
    b: OcrResult,
    differences: Sequence[Difference],
    lines: Sequence[InputLine],
    divergence: Divergence | None,
) -> tuple[Cause, ...]:
    """Settings that differ in what decides, then loops, ties and rounding; none where the outputs are equal.

    Rounding of another number type is no tie and needs none: no margin speaks against it. Where rounding
    does not explain a divergence, another order of sums does not either.
    """
    if all(item.kind in SETTINGS for item in differences) and divergence is None:
        return ()
    differing = {line.name: line for line in lines if line.state == "differs"}
    if "truncated" not in {item.kind for item in differences}:
        differing.pop(inputs.LIMIT, None)
    margins = divergence.margins if divergence else None
    if margins is not None and not margins.tie:
        differing.pop(inputs.ATTENTION, None)
    found: dict[CauseName, str] = {}
    if _swapped(a, b):
        found["exif"] = (
            f"the page is {_size(a)} in A and {_size(b)} in B: one side did not apply the EXIF orientation"
        )
    for name, (cause, words) in _LINES.items():
        if name in differing and differing.keys().isdisjoint(_FOLLOWS.get(name, ())):
            line = differing[name]
            of_a, of_b = (shortened(" ".join((text or NOT_KNOWN).split()), 80) for text in (line.a, line.b))
            found.setdefault(cause, words.format(a=of_a, b=of_b))
    for item in differences:
        if item.kind == "loop":
            found["loop"] = f"{item.words}: from there on nothing can agree"
        if item.kind == "truncated":
            found.setdefault("length", item.words)
    if divergence is not None and margins is not None:
        what = f"the tokens diverge at step {divergence.index:,}, {margin_words(margins)}"
        if margins.tie:
            found["tie"] = f"{what}: rounding can explain it"
        elif differing.keys().isdisjoint(_ROUNDING):
            found["not a tie"] = f"{what}: rounding does not explain it"
    return tuple(Cause(cause, words) for cause, words in found.items())


def reproduced(found: Sequence[Cause], words: str) -> tuple[Cause, ...]:
    """Causes of a page whose difference was reproduced: that first, and what was only likely goes."""
    return (Cause("reproduced", words), *(each for each in found if each.name == "loop"))


def _swapped(a: OcrResult, b: OcrResult) -> bool:
    (width, height), other = a.image_size, b.image_size
    return bool(width and height) and (height, width) == other and width != height


def _size(result: OcrResult) -> str:
    width, height = result.image_size
    return f"{width} x {height}"
