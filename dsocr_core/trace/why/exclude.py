"""Hypotheses that need no run: both sides share the setting, or it cannot change this page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ExifTags, Image

from dsocr_core.engine.ngram_rule import forbidden_steps, same_choices
from dsocr_core.models.hypotheses import Hypothesis
from dsocr_core.page.prompt import build_prompt
from dsocr_core.page.tiling import page_grid
from dsocr_core.reading.records import ModelInputs, NgramPolicy, OcrRequest
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.match import SideB
from dsocr_core.trace.why.reader import Reading


@dataclass(frozen=True)
class Exclusion:
    """A hypothesis that is not run, and why. Unless `always`, it may still matter together with another."""

    hypothesis: Hypothesis
    why: str
    always: bool = True


@dataclass(frozen=True)
class Page:
    """Size of the first image of a prompt as stored, and how EXIF turns any image of it."""

    width: int
    height: int
    turned: bool
    swapped: bool
    """True where EXIF swaps width and height of the first image."""


@dataclass(frozen=True)
class Base:
    """Reading to which a hypothesis is added. At token `diverged` at the latest it and B part."""

    attempt: Attempt
    reading: Reading
    diverged: int
    policy: NgramPolicy


def page_of(images: Sequence[Path]) -> Page:
    """Facts of a prompt's files, without decoding them. Broken EXIF does not turn."""
    sizes, orientations = [], []
    for path in images:
        with Image.open(path) as image:
            try:
                orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
            except (OSError, ValueError, SyntaxError, TypeError, KeyError, AttributeError):
                orientation = 1
            sizes.append(image.size)
            orientations.append(orientation)
    turned = not set(orientations).isdisjoint(range(2, 9))
    return Page(*sizes[0], turned, swapped=orientations[0] in range(5, 9))


def excluded(
    hypothesis: Hypothesis, base: Base, other: SideB, page: Page, policy: NgramPolicy
) -> Exclusion | None:
    """Why the hypothesis cannot be the cause on this page; None where it may be.

    `policy` is the n-gram rule under the hypothesis.
    """
    attempt, always = base.attempt.changed(hypothesis.change), True
    request, before = attempt.request, base.attempt.request
    why = other.inputs and _by_inputs(hypothesis.group, attempt, base.reading.inputs, other.inputs)
    if attempt == base.attempt:
        why = "the prompt has one image" if hypothesis.group == "pages" else "A does it too"
    elif not why and hypothesis.group == "ngram":
        why, always = _by_tokens(base, policy, other)
    elif not why and hypothesis.group == "exif":
        why = None if page.turned else "the file has no EXIF rotation"
    elif not why and hypothesis.group == "prompt":
        texts = {build_prompt(each.required.prompt, each.template) for each in (request, before)}
        why = "the prompt has no such newline" if len(texts) == 1 else None
    elif not why and hypothesis.group == "views":
        why = _by_views(request, before, page)
        # For a page turned by a quarter the grid depends on EXIF.
        always = not (why and page.swapped and before.resolution.crop_mode)
    return Exclusion(hypothesis, why, always) if why else None


def _by_inputs(group: str, attempt: Attempt, ours: ModelInputs, theirs: ModelInputs) -> str | None:
    """Exclude by inputs that B has recorded, or that both sides have recorded as equal."""
    request = attempt.request
    rules = (
        (each.no_repeat_ngram_size, each.ngram_window, each.ngram_whitelist) for each in (request, theirs)
    )
    if group == "ngram" and len(set(rules)) == 2:
        return f"B's n-gram rule is {theirs.ngram_words}"
    if group == "dtype" and attempt.dtype != theirs.dtype:
        return f"B computes in {theirs.dtype}"
    if group == "prompt" and ours.prompt_ids == theirs.prompt_ids:
        return "the prompt's ids are equal"
    pixels = {(each.global_sha256, each.tiles_sha256, each.grid) for each in (ours, theirs)}
    if group in ("views", "exif") and len(pixels) == 1:
        return "the pixels of all views are equal"
    return None


def _by_views(request: OcrRequest, before: OcrRequest, page: Page) -> str | None:
    if before.more:
        return "pages of one prompt are not cut"
    ours, theirs = before.resolution, request.resolution
    if request.preset == before.preset and not ours.crop_mode:
        return f"{before.preset} does not cut pages"
    grids = {_grid(each, page) for each in (request, before)}
    if len(grids) == 1 and replace(theirs, name=ours.name, max_tiles=ours.max_tiles) == ours:
        columns, rows = grids.pop()
        return f"the page is cut into {columns} x {rows} tiles under both"
    return None


def _grid(request: OcrRequest, page: Page) -> tuple[int, int]:
    turned = page.swapped and request.exif
    width, height = (page.height, page.width) if turned else (page.width, page.height)
    return page_grid(width, height, request.resolution)


def _by_tokens(base: Base, policy: NgramPolicy, other: SideB) -> tuple[str | None, bool]:
    """Exclude an n-gram rule that chooses A's tokens up to where B diverges from A."""
    tokens = base.reading.tokens[: base.diverged + 1]
    if same_choices(base.policy, policy, tokens, base.reading.inputs.prompt_ids):
        return f"it forbids nothing else in the first {len(tokens)} tokens", False
    if other.tokens is not None and (steps := forbidden_steps(policy, other.tokens)):
        return f"B's token {steps[0]} breaks it", True
    return None, True
