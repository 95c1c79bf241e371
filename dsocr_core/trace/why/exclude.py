"""Hypotheses that need no run: what both sides are known to share, and what could not change the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ExifTags, Image

from dsocr_core.models.spec import Hypothesis
from dsocr_core.page.prompt import build_prompt
from dsocr_core.page.tiling import page_grid
from dsocr_core.reading.ngram_rule import forbidden_steps, same_choices
from dsocr_core.reading.records import ModelInputs, NgramPolicy, OcrRequest
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reading


@dataclass(frozen=True)
class Reason:
    """Why a hypothesis is not run. Unless that holds `always`, it may do something together with another."""

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
    """Reading to which a hypothesis is added. `diverged` is the number of the token at which it and B
    diverge, at the latest."""

    attempt: Attempt
    reading: Reading
    diverged: int
    policy: NgramPolicy


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
    recorded = _by_inputs(hypothesis, attempt, base.reading.inputs, other.inputs) if other.inputs else None
    if recorded is not None:
        return Reason(recorded)
    if hypothesis.group == "ngram":
        return _by_tokens(base, policy, other)
    return _by_page(hypothesis, attempt.request, base.attempt.request, page)


def _by_inputs(
    hypothesis: Hypothesis, attempt: Attempt, ours: ModelInputs, theirs: ModelInputs
) -> str | None:
    """Exclude by what B has recorded of itself, and by what both have recorded equally."""
    request, group = attempt.request, hypothesis.group
    policy = (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist)
    if group == "ngram" and policy != (
        theirs.no_repeat_ngram_size,
        theirs.ngram_window,
        theirs.ngram_whitelist,
    ):
        return f"B's n-gram rule is {theirs.ngram_words}"
    if group == "dtype" and attempt.dtype != theirs.dtype:
        return f"B computes in {theirs.dtype}"
    if group == "prompt" and ours.prompt_ids == theirs.prompt_ids:
        return "the prompt's ids are equal"
    pixels = (ours.global_sha256, ours.tiles_sha256, ours.grid)
    if group in ("views", "exif") and pixels == (theirs.global_sha256, theirs.tiles_sha256, theirs.grid):
        return "the pixels of all views are equal"
    return None


def _by_page(hypothesis: Hypothesis, request: OcrRequest, base: OcrRequest, page: Page) -> Reason | None:
    """Exclude what changes nothing on this page."""
    if hypothesis.group == "exif":
        return None if page.turned else Reason("the file has no EXIF rotation")
    if hypothesis.group == "prompt":
        texts = {build_prompt(each.required.prompt, each.template) for each in (request, base)}
        return Reason("the prompt has no such newline") if len(texts) == 1 else None
    if hypothesis.group != "views":
        return None
    if base.more:
        return Reason("pages of one prompt are not cut")
    grids = {_grid(each, page) for each in (request, base)}
    ours, theirs = base.resolution, request.resolution
    if request.preset == base.preset and not ours.crop_mode:
        return Reason(f"{base.preset} does not cut pages")
    if len(grids) == 1 and replace(theirs, name=ours.name, max_tiles=ours.max_tiles) == ours:
        columns, rows = grids.pop()
        return Reason(f"the page is cut into {columns} x {rows} tiles under both", not page.swapped)
    return None


def _grid(request: OcrRequest, page: Page) -> tuple[int, int]:
    turned = page.swapped and request.exif
    width, height = (page.height, page.width) if turned else (page.width, page.height)
    return page_grid(width, height, request.resolution)


def _by_tokens(base: Base, policy: NgramPolicy, other: Other) -> Reason | None:
    """An n-gram rule that chooses as A's does up to where B diverges from A is not why they do."""
    tokens = base.reading.tokens[: base.diverged + 1]
    if same_choices(base.policy, policy, tokens, base.reading.inputs.prompt_ids):
        return Reason(f"it forbids nothing else in the first {len(tokens)} tokens", always=False)
    if other.tokens is not None and (steps := forbidden_steps(policy, other.tokens)):
        return Reason(f"B's token {steps[0]} breaks it")
    return None
