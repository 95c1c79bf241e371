"""Nearness of a reading to B, and what of the rest needs no model: stripped markup, a shorter limit."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.postprocess import clean_text, result_mmd
from dsocr_core.reading.records import FinishReason, ModelInputs

STRIPPED, CLEANED, CUT = "special tokens stripped", "boxes removed as in result.mmd", "a token limit of {}"
_LEFT_AFTER, _LEFT_AFTER_MARKUP = 48, 200
"""Characters that a reading goes on after it parted from B: what follows says nothing more. More where boxes
that are not written whole look like text."""
_CHANCE = 16
FEWEST_OF_PREFIX = 8
"""Characters that a text cut short must have to say anything."""


@dataclass(frozen=True)
class Other:
    """B on one page. None is what is not known."""

    name: str
    text: str
    tokens: tuple[int, ...] | None = None
    finish: FinishReason | None = None
    inputs: ModelInputs | None = None
    prompt: str | None = None
    quantisation: str | None = None

    @functools.cached_property
    def clean(self) -> str:
        return clean_text(self.text)

    @property
    def ended(self) -> bool:
        """Tell whether B is known to have come to its end token."""
        return self.finish == "eos" or self.text.rstrip().endswith(END_MARKER)


@dataclass(frozen=True)
class Match:
    """A reading against B. `free` are causes that need no model, where they apply."""

    exact: bool
    agreed: int
    """Characters of B before the first difference, after the same free changes."""
    of: int
    error_rate: float
    """Character error rate of the texts as far as both were read."""
    free: tuple[str, ...] = ()

    @property
    def closeness(self) -> tuple[bool, int, float]:
        """For ordering: larger is nearer."""
        return self.exact, self.agreed, -self.error_rate


class Matcher:
    """Compares readings with one B. `special` are the texts that a server may strip."""

    def __init__(self, other: Other, special: Sequence[str]) -> None:
        self.other = other
        strip = functools.partial(_without, re.compile("|".join(map(re.escape, special)) or "$^"))
        forms: list[tuple[tuple[str, ...], Callable[[str], str]]] = [((), clean_text)]
        if "<|ref|>" not in other.text:
            forms += [((STRIPPED,), strip), ((CLEANED,), lambda text: result_mmd(text).strip())]
        self._forms = forms

    def goes_with(self, text: str) -> bool:
        """Tell whether a reading that has come so far has not parted from B for long, in any form."""
        margin = _LEFT_AFTER if len(self._forms) == 1 else _LEFT_AFTER_MARKUP
        readings = (form(text) for _, form in self._forms)
        return any(len(each) - common_prefix(each, self.other.clean) <= margin for each in readings)

    def match(self, text: str, tokens: Sequence[int], whole: bool = True) -> Match:
        """Match a reading; `whole` when it was not left early."""
        other = self.other
        if other.tokens is not None and (found := self._tokens(tokens)) is not None:
            return found
        plain, *others = (self._form(free, form(text), whole) for free, form in self._forms)
        if plain.exact:
            return plain
        best = max(others, key=lambda each: each.closeness, default=plain)
        # A few characters in common are chance.
        return best if best.exact or best.agreed > plain.agreed + _CHANCE else plain

    def _tokens(self, tokens: Sequence[int]) -> Match | None:
        """By tokens where they decide."""
        theirs, size = self.other.tokens or (), len(self.other.clean)
        if tuple(tokens) == theirs:
            return Match(True, size, size, 0.0)
        if not self.other.ended and 0 < len(theirs) < len(tokens) and tuple(tokens[: len(theirs)]) == theirs:
            return Match(True, size, size, 0.0, (CUT.format(len(theirs)),))
        return None

    def _form(self, free: tuple[str, ...], text: str, whole: bool) -> Match:
        theirs = self.other.clean
        if text == theirs:
            return Match(True, len(theirs), len(theirs), 0.0, free)
        agreed = common_prefix(text, theirs)
        if not self.other.ended and agreed == len(theirs) >= FEWEST_OF_PREFIX:
            limit = len(self.other.tokens) if self.other.tokens is not None else f"{agreed} characters"
            return Match(True, agreed, agreed, 0.0, (*free, CUT.format(limit)))
        reference = theirs if whole else theirs[: len(text)]
        errors = Levenshtein.distance(text, reference) / max(1, len(reference))
        return Match(False, agreed, len(theirs), errors, free)


def common_prefix(a: str, b: str) -> int:
    """Characters before the first difference."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _without(special: re.Pattern[str], text: str) -> str:
    return special.sub("", text).strip()
