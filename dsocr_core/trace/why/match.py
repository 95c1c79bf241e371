"""B's text of a page, and how near a reading comes to it, up to differences that need no model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from dsocr_core.page.prompt import build_prompt
from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.postprocess import clean_text, result_mmd
from dsocr_core.reading.records import VENDOR, FinishReason, ModelInputs, OcrResult

STRIPPED, CLEANED, CUT = "special tokens stripped", "boxes removed as in result.mmd", "a token limit of {}"
_LEFT_AFTER, _LEFT_AFTER_MARKUP = 48, 200
"""Characters that a reading goes on after it diverged from B: what follows says nothing more. More where
boxes that are not written whole look like text."""
_CHANCE = 16
FEWEST_OF_PREFIX = 8
"""Fewest characters of a text that was cut short which still count as evidence."""
_UNQUANTISED = ("eager", "fast", VENDOR)
"""Backends that read the checkpoint's own weights. For others quantisation is known only if they tell."""


@dataclass(frozen=True)
class SideB:
    """B's reading of one page. None is not known."""

    name: str
    text: str
    tokens: tuple[int, ...] | None = None
    finish: FinishReason | None = None
    inputs: ModelInputs | None = None
    prompt: str | None = None
    quantisation: str | None = None

    @classmethod
    def of(cls, result: OcrResult, name: str) -> SideB:
        """B from a result of any backend. Its prompt is known only with its inputs: a server or program may
        change ours."""
        request, inputs = result.request, result.inputs
        return cls(
            name,
            result.text_raw,
            result.token_ids,
            result.finish_reason,
            inputs,
            None if inputs is None else build_prompt(request.required.prompt, request.template),
            result.environment.get("quantisation") or ("none" if result.backend in _UNQUANTISED else None),
        )

    @functools.cached_property
    def clean_text(self) -> str:
        """B's text without its end marker."""
        return clean_text(self.text)

    @property
    def ended(self) -> bool:
        """Tell whether B is known to have ended with its end token."""
        return self.finish == "eos" or self.text.rstrip().endswith(END_MARKER)


@dataclass(frozen=True)
class Match:
    """A reading compared with B. `free` are causes that need no model, where they apply."""

    exact: bool
    agreed: int
    """Characters of B before the first difference, after the free changes."""
    of: int
    error_rate: float
    """Character error rate of the texts, up to the end of the shorter reading."""
    free: tuple[str, ...] = ()

    @property
    def closeness(self) -> tuple[bool, int, float]:
        """Sort key: larger is nearer to B."""
        return self.exact, self.agreed, -self.error_rate


class Matcher:
    """Compares readings with one B. `special` are texts of tokens that a server may strip."""

    def __init__(self, other: SideB, special: Sequence[str]) -> None:
        self.other = other
        stripped = re.compile("|".join(map(re.escape, special)) or "$^")
        self._forms: list[tuple[tuple[str, ...], Callable[[str], str]]] = [((), clean_text)]
        if "<|ref|>" not in other.text:
            self._forms.append(((STRIPPED,), lambda text: stripped.sub("", text).strip()))
            self._forms.append(((CLEANED,), lambda text: result_mmd(text).strip()))

    def goes_with(self, text: str) -> bool:
        """Tell whether a reading so far still agrees with B, or diverged only a short way back."""
        margin = _LEFT_AFTER if len(self._forms) == 1 else _LEFT_AFTER_MARKUP
        readings = (form(text) for _, form in self._forms)
        return any(len(each) - _agreed(each, self.other.clean_text) <= margin for each in readings)

    def match(self, text: str, tokens: Sequence[int], whole: bool = True) -> Match:
        """Match a reading. `whole` is true unless it was left early."""
        theirs, size, tokens = self.other.tokens, len(self.other.clean_text), tuple(tokens)
        if theirs is not None and tokens == theirs:
            return Match(True, size, size, 0.0)
        if theirs and not self.other.ended and len(theirs) < len(tokens) and tokens[: len(theirs)] == theirs:
            return Match(True, size, size, 0.0, (CUT.format(len(theirs)),))
        plain, *others = (self._by_text(free, form(text), whole) for free, form in self._forms)
        best = max(others, key=lambda each: each.closeness, default=plain)
        # A few characters in common are chance.
        better = best.exact or best.agreed > plain.agreed + _CHANCE
        return best if better and not plain.exact else plain

    def _by_text(self, free: tuple[str, ...], text: str, whole: bool) -> Match:
        theirs = self.other.clean_text
        if text == theirs:
            return Match(True, len(theirs), len(theirs), 0.0, free)
        agreed = _agreed(text, theirs)
        if not self.other.ended and agreed == len(theirs) >= FEWEST_OF_PREFIX:
            limit = len(self.other.tokens) if self.other.tokens is not None else f"{agreed} characters"
            return Match(True, agreed, agreed, 0.0, (*free, CUT.format(limit)))
        reference = theirs if whole else theirs[: len(text)]
        errors = Levenshtein.distance(text, reference) / max(1, len(reference))
        return Match(False, agreed, len(theirs), errors, free)


def _agreed(a: str, b: str) -> int:
    """Number of characters before the first difference."""
    differing = (place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return next(differing, min(len(a), len(b)))
