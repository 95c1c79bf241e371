"""Texts and the pages they belong to: by the page's name, and where names do not say, by its picture."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.visible import name_text
from dsocr_core.page.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.page.opener import count_pages, render_page
from dsocr_core.runs.texts.folders import FORMS, numbered, page_names, same_name, without_suffix
from dsocr_core.runs.texts.pictures import Copy, is_of
from dsocr_core.runs.texts.prediction import PDF_RAW, Found, Prediction, PredictionError

_LAYOUT_DPI = 96
"""At which a page of the layouts has the pixels that it was drawn with."""
_MOST_LAYOUTS = 5000
_MOST_NAMED = 5
Picture = Callable[[], Image.Image]


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
        self._layouts: dict[str, list[Copy]] = {}
        self._pieces: dict[str, list[Prediction]] = {}
        self._by_name: dict[str, list[Prediction]] = {}
        self._numbered: dict[tuple[str, str], dict[int, list[Prediction]]] = {}
        for prediction in found.predictions:
            if prediction.piece is not None:
                self._pieces.setdefault(same_name(prediction.piece.document), []).append(prediction)
                continue
            whole = same_name(prediction.name)
            for name in dict.fromkeys((whole, PurePath(whole).name)):
                self._by_name.setdefault(name, []).append(prediction)
                if (parts := numbered(name)) is not None:
                    of_document = self._numbered.setdefault(parts[:2], {})
                    of_document.setdefault(parts[2], []).append(prediction)

    def text_of(self, source: str, picture: Picture) -> Prediction:
        """The text of a page that is called so. `picture` opens the page, and is called where it is needed.

        Raises PredictionError: there is none, or it cannot be told which it is.
        """
        with self._lock:
            prediction = self._named(source) or self._of_document(source, picture) or self._alike(picture)
            if prediction is None:
                raise PredictionError(f"{source}: {self._root} has no text of that name")
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

    # --- a document's texts, whose page numbers are not there ---------------------------------------

    def _of_document(self, source: str, picture: Picture) -> Prediction | None:
        document, number = _page_of(source)
        texts = self._pieces.get(PurePath(document).name) if document is not None else None
        if not texts:
            return None
        if len({text.file for text in texts}) > 1:
            raise PredictionError(f"{source}: {self._root} has the texts of two documents of that name")
        # Pages are left out and never added, so text k is of page k or of a later one.
        return self._placed(source, texts[:number], picture)

    def _placed(self, source: str, texts: Sequence[Prediction], picture: Picture) -> Prediction:
        file = name_text(texts[0].file.name)
        try:
            layouts = self._layouts_of(texts[0])
        except DsocrError as error:
            raise PredictionError(
                f"{source}: which text of {file} is its own cannot be told: {error}"
            ) from error
        page = Copy.of(picture())
        like = [text for text, drawn in zip(texts, layouts, strict=False) if is_of(page, drawn, text.text)]
        if not like:
            raise PredictionError(f"{source}: {file} has no text of it; unfinished pages are left out")
        if len({text.text for text in like}) > 1:
            numbers = ", ".join(str(text.piece.index) for text in like[:5] if text.piece)
            raise PredictionError(f"{source}: it may be text {numbers} of {file}: those pages look alike")
        return next((text for text in like if id(text) not in self._given), like[0])

    def _layouts_of(self, prediction: Prediction) -> list[Copy]:
        """The pages with boxes that lie beside a document's texts. Raises DsocrError."""
        piece = prediction.piece
        assert piece is not None
        key = str(prediction.file)
        if key not in self._layouts:
            if not prediction.file.name.endswith(PDF_RAW):
                raise PredictionError(f"{piece.document}_det.mmd, which has the boxes, is not there")
            if piece.layouts is None:
                raise PredictionError(
                    f"it has {piece.count} texts without page numbers, and {piece.document}_layouts.pdf "
                    "is not there"
                )
            count = count_pages(piece.layouts)
            if count != piece.count or count > _MOST_LAYOUTS:
                raise PredictionError(
                    f"{name_text(piece.layouts.name)} has {count} pages and there are {piece.count} texts"
                )
            self._layouts[key] = [
                Copy.of(render_page(piece.layouts, number, _LAYOUT_DPI, DEFAULT_MAX_PIXELS))
                for number in range(1, count + 1)
            ]
        return self._layouts[key]

    # --- one page in a folder of its own ------------------------------------------------------------

    def _alike(self, picture: Picture) -> Prediction | None:
        """The only page of a folder, where its picture with boxes is of this page."""
        candidates = [each for each in self.found.predictions if each.picture is not None]
        if len(candidates) != 1 or candidates[0].picture is None:
            return None
        page = picture()
        try:
            drawn = load_image(candidates[0].picture)
        except DsocrError:
            return None
        is_like = drawn.size == page.size and is_of(Copy.of(page), Copy.of(drawn), candidates[0].text)
        return candidates[0] if is_like else None


def _page_of(source: str) -> tuple[str | None, int]:
    """The document's name without its suffix and the page's number, of `paper.pdf#3`; None of others."""
    document, hash_mark, digits = same_name(source).rpartition("#")
    if not hash_mark or not (digits.isdecimal() and digits.isascii()):
        return None, 0
    return without_suffix(document), int(digits)
