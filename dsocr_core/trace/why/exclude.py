"""Hypotheses that need no run: what both sides are known to share, and what could not change the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ExifTags, Image

from dsocr_core.models.hypotheses import Hypothesis
from dsocr_core.page.prompt import build_prompt
from dsocr_core.page.tiling import page_grid
from dsocr_core.reading.ngram_rule import forbidden_steps, same_choices
from dsocr_core.reading.records import NgramPolicy, OcrRequest
from dsocr_core.trace.why.hypotheses import Attempt
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reading


@dataclass(frozen=True)
class Reason:
    """Why a hypothesis is not run. Unless that holds `always`, it may do something beside another."""

    words: str
    always: bool = True


@dataclass(frozen=True)
class Page:
    """Facts of the page that exclusions need: its size as stored, and what EXIF does to it. Of pages in one
    prompt, which are never cut, the first one's size, and whether any is turned.
    """

    width: int
    height: int
    turned: bool
    swapped: bool
    """Turned by a quarter, so that width becomes height."""


@dataclass(frozen=True)
class Base:
    """Reading to which a hypothesis is added. `parted` is the number of the token at which it and B part,
    at the latest."""

    attempt: Attempt
    reading: Reading
    parted: int
    policy: NgramPolicy
    window: int | None = None
    """Tokens of the decoder's window; None where it forgets none."""


def page_of(images: Sequence[Path]) -> Page:
    """Take the facts of a prompt's files, nothing decoded. Broken EXIF turns nothing."""
    found = []
    for path in images:
        with Image.open(path) as image:
            try:
                orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
            except (OSError, ValueError, SyntaxError, TypeError, KeyError, AttributeError):
                orientation = 1
            found.append((image.size, orientation))
    size, orientations = found[0][0], {orientation for _, orientation in found}
    return Page(*size, turned=not orientations.isdisjoint(range(2, 9)), swapped=found[0][1] in range(5, 9))


def excluded(
    hypothesis: Hypothesis, base: Base, other: Other, page: Page, policy: NgramPolicy
) -> Reason | None:
    """Why the hypothesis cannot be the cause on this page; None when it may be.

    `policy` is the n-gram rule with the hypothesis applied.
    """
    attempt = base.attempt.changed(hypothesis.change)
    if attempt == base.attempt:
        return Reason("the prompt has one image" if hypothesis.group == "pages" else "A does it too")
    return (
        _by_facts(hypothesis, attempt, base.attempt, other)
        or _by_page(hypothesis, attempt.request, base.attempt.request, page)
        or _by_window(hypothesis, base)
        or (_by_tokens(base, policy, other) if hypothesis.group == "ngram" else None)
    )


def _by_facts(hypothesis: Hypothesis, attempt: Attempt, base: Attempt, other: Other) -> Reason | None:
    """Exclude by what B says of itself."""
    theirs = other.inputs
    if theirs is None:
        return None
    request = attempt.request
    if hypothesis.group == "ngram":
        policy = (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist)
        if policy != (theirs.no_repeat_ngram_size, theirs.ngram_window, theirs.ngram_whitelist):
            return Reason(f"B's n-gram rule is {theirs.ngram_words}")
    if hypothesis.group == "dtype" and attempt.dtype != theirs.dtype:
        return Reason(f"B computes in {theirs.dtype}")
    return None


def same_inputs(hypothesis: Hypothesis, reading: Reading, other: Other) -> Reason | None:
    """Exclude what both sides' recorded inputs, equal on A and B, rule out."""
    ours, theirs = reading.inputs, other.inputs
    if theirs is None:
        return None
    if hypothesis.group == "prompt" and ours.prompt_ids == theirs.prompt_ids:
        return Reason("the prompt's ids are equal")
    pixels = (ours.global_sha256, ours.tiles_sha256, ours.grid)
    same_pixels = pixels == (theirs.global_sha256, theirs.tiles_sha256, theirs.grid)
    if hypothesis.group in ("views", "exif") and same_pixels:
        return Reason("the pixels of all views are equal")
    return None


def _by_page(hypothesis: Hypothesis, request: OcrRequest, base: OcrRequest, page: Page) -> Reason | None:
    """Exclude what changes nothing on this page."""
    if hypothesis.group == "exif":
        return None if page.turned else Reason("the file has no EXIF rotation")
    if hypothesis.group == "prompt":
        texts = {build_prompt(each.required.prompt, each.template) for each in (request, base)}
        return Reason("the prompt has no such newline") if len(texts) == 1 else None
    if hypothesis.group == "views" and base.more:
        return Reason("pages of one prompt are not cut")
    if hypothesis.group == "views":
        grids = {_grid(each, page) for each in (request, base)}
        ours, theirs = base.resolution, request.resolution
        if request.preset == base.preset and not ours.crop_mode:
            return Reason(f"{base.preset} does not cut pages")
        if len(grids) == 1 and replace(theirs, name=ours.name, max_tiles=ours.max_tiles) == ours:
            columns, rows = grids.pop()
            return Reason(f"the page is cut into {columns} x {rows} tiles under both", not page.swapped)
    return None


def _by_window(hypothesis: Hypothesis, base: Base) -> Reason | None:
    """Exclude a window that is full only after A and B have parted: up to there all tokens are seen."""
    if hypothesis.group != "window":
        return None
    if base.window is None:
        return Reason("the model forgets nothing")
    fewest = base.window
    if hypothesis.change.get("span") == "sliding":
        return None
    if isinstance(less := hypothesis.change.get("window"), int):
        fewest += min(less, 0)
    elif less == "half":
        fewest //= 2
    if base.parted <= fewest:
        words = f"A and B part at token {base.parted}, before {fewest} are in the window"
        return Reason(words, always=False)
    return None


def _grid(request: OcrRequest, page: Page) -> tuple[int, int]:
    turned = page.swapped and request.exif
    width, height = (page.height, page.width) if turned else (page.width, page.height)
    return page_grid(width, height, request.resolution)


def _by_tokens(base: Base, policy: NgramPolicy, other: Other) -> Reason | None:
    """An n-gram rule that chooses as A's does up to where B parts from A is not why they part."""
    tokens = base.reading.tokens[: base.parted + 1]
    if same_choices(base.policy, policy, tokens, base.reading.inputs.prompt_ids):
        return Reason(f"it forbids nothing else in the first {len(tokens)} tokens", always=False)
    if other.tokens is not None and (steps := forbidden_steps(policy, other.tokens)):
        return Reason(f"B's token {steps[0]} breaks it")
    return None


def unordered(chosen: Sequence[Hypothesis]) -> frozenset[str]:
    """A combination's name, whatever its order."""
    return frozenset(each.name for each in chosen)
