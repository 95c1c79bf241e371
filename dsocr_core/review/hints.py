"""Likely causes of a page's differences, where there is one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dsocr_core.reading import input_parity as inputs
from dsocr_core.reading.margins import margin_words
from dsocr_core.reading.parity_records import NOT_KNOWN, Divergence, InputLine, ParityReport
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.page import Cause, Difference, Hint, shared

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
