"""Texts and the pages they belong to, by the names of both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dsocr_core.base.sanitise import name_text
from dsocr_core.runs.texts.folders import FORMS, numbered, page_names, same_name, without_suffix
from dsocr_core.runs.texts.prediction import Found, Prediction, PredictionError

_MOST_NAMED = 5


@dataclass(frozen=True)
class LeftOver:
    """Files and texts of a folder that belong to none of the pages that were asked for."""

    texts: tuple[str, ...]
    """Names of texts, safe to show."""
    files: tuple[tuple[str, str], ...]
    """Files that are not read, each with the reason."""

    def __bool__(self) -> bool:
        return bool(self.texts or self.files)

    def document(self) -> dict[str, Any]:
        """All of it, for a JSON document."""
        return {
            "texts": list(self.texts),
            "files": [{"name": name, "reason": reason} for name, reason in self.files],
        }

    def lines(self) -> list[str]:
        """For people: how many, and the first of them."""
        lines = []
        if self.texts:
            names = ", ".join(self.texts[:_MOST_NAMED])
            count = len(self.texts)
            more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
            lines.append(f"{count} text{'s' * (count > 1)} of no page that was read: {names}{more}")
        lines += [f"not taken: {name} ({reason})" for name, reason in self.files[:_MOST_NAMED]]
        if len(self.files) > _MOST_NAMED:
            lines.append(f"{len(self.files) - _MOST_NAMED} more files not taken")
        return lines


class ByName:
    """The texts of a folder by page. Thread-safe."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._lock = threading.Lock()
        self._given: set[int] = set()
        self._shared: dict[str, list[str]] = {}
        """Pages whose text is that of others by its name, too, and these."""
        self._by_name: dict[str, list[Prediction]] = {}
        self._numbered: dict[tuple[str, str], dict[int, list[Prediction]]] = {}
        for prediction in found.predictions:
            whole = same_name(prediction.name)
            for name in dict.fromkeys((whole, PurePath(whole).name)):
                self._by_name.setdefault(name, []).append(prediction)
                if (parts := numbered(name)) is not None:
                    of_document = self._numbered.setdefault(parts[:2], {})
                    of_document.setdefault(parts[2], []).append(prediction)

    def expect(self, sources: Iterable[str]) -> None:
        """Find the texts that the names of several of these pages lead to: no page gets such a text.

        A page in the text's own folder has it before pages of other folders.
        """
        claims: dict[int, dict[str, bool]] = {}
        own: dict[str, Prediction] = {}
        for source in sources:
            document, _ = _page_of(source)
            with contextlib.suppress(PredictionError):
                if (text := self._named(source)) is not None:
                    own[source] = text
            # A text that is named like a whole document may be of any of its pages.
            like = [] if source in own or document is None else self._by_name.get(PurePath(document).name, [])
            for text in [own[source]] if source in own else like:
                beside = PurePath(same_name(text.name)).parent == PurePath(same_name(source)).parent
                claims.setdefault(id(text), {})[source] = beside
        with self._lock:
            self._shared = {}
            for source, text in own.items():
                by = claims[id(text)]
                others = [each for each in by if each != source]
                if others and not (by[source] and sum(by.values()) == 1):
                    self._shared[source] = others

    def text_of(self, source: str) -> Prediction:
        """The text of a page of that name. Raises PredictionError where there is none, or several may be."""
        with self._lock:
            prediction = self._named(source)
            if prediction is None:
                raise PredictionError(
                    f"{source}: {self._root} has no text of that name; name it like the page, "
                    f"as in {_expected(source)}"
                )
            if others := self._shared.get(source):
                raise PredictionError(
                    f"{source}: not known whether {name_text(prediction.file.name)} is its text or that of "
                    f"{', '.join(others[:_MOST_NAMED])}; name one for each, as in {PurePath(source).name}.md"
                )
            self._given.add(id(prediction))
            return prediction

    def has(self, source: str) -> bool:
        """Tell whether there is a text of that name, or several."""
        return any(candidates for _, candidates in self._candidates(source))

    def not_asked_for(self) -> list[Prediction]:
        """The texts that no page has taken."""
        with self._lock:
            return [each for each in self.found.predictions if id(each) not in self._given]

    def left_over(self) -> LeftOver:
        """The texts that no page has taken so far, and the files that are not read."""
        return LeftOver(
            tuple(name_text(each.name) for each in self.not_asked_for()),
            tuple((name_text(left.file.name), left.reason) for left in self.found.left),
        )

    @property
    def _root(self) -> str:
        return name_text(self.found.root)

    def _named(self, source: str) -> Prediction | None:
        for key, candidates in self._candidates(source):
            exact = [each for each in candidates if same_name(each.name).startswith(key)]
            chosen = exact or candidates
            if len(chosen) > 1:
                files = ", ".join(name_text(each.file.name) for each in chosen[:3])
                raise PredictionError(
                    f"{source}: {self._root} has {len(chosen)} texts of that name ({files})"
                )
            if chosen:
                return chosen[0]
        return None

    def _candidates(self, source: str) -> Iterator[tuple[str, list[Prediction]]]:
        """Names that the page's text may have, likeliest first, with the texts that are called so."""
        document, number = _page_of(source)
        if document is None:
            for name in page_names(source):
                for key in dict.fromkeys((name, PurePath(name).name)):
                    yield key, self._by_name.get(key, [])
            return
        for key in dict.fromkeys((document, PurePath(document).name)):
            for form in FORMS:
                pages = self._numbered.get((key, form), {})
                # One that counts from 0 does so for all pages of a document.
                yield key, pages.get(number - (0 in pages), [])


def _expected(source: str) -> str:
    """A name that the text of a page is found by."""
    document, number = _page_of(source)
    name = PurePath(source if document is None else document)
    return f"{name.stem}.md" if document is None else f"{name.name}_{number}.md"


def _page_of(source: str) -> tuple[str | None, int]:
    """The document's name without its suffix and the page's number, of `paper.pdf#3`; None of others."""
    document, hash_mark, digits = same_name(source).rpartition("#")
    if not hash_mark or not (digits.isdecimal() and digits.isascii()):
        return None, 0
    return without_suffix(document), int(digits)
