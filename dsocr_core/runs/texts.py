"""Texts that another program wrote into a folder, each for the page whose name it has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from unicodedata import normalize

from dsocr_core.base.bounded_json import InvalidFile, plain_text, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX

FILE_LIMIT, DEPTH_LIMIT = 50_000, 4
"""Files of a folder, and folders below each other, that are looked at."""
TEXT_LIMIT, TOTAL_LIMIT = 64 * 1024 * 1024, 512 * 1024 * 1024
"""Bytes of a file of text, and of all texts of a folder."""
TEXT_SUFFIXES = (".md", ".mmd", ".markdown", ".txt")
PAGE_END = "\n\n<--- Page Split --->\n"
"""Line that the vendor's PDF script writes after each page."""
_RAW, _CLEAN, _WITH_BOXES = "result_ori.mmd", "result.mmd", "_det"
_NUMBERED = re.compile(r"(.+?)(#|_pg|_page_|_page|_p|_|-page-|-)(\d{1,9})(?:_repeat1)?", re.DOTALL)
_FORMS = ("#", "_", "_pg", "_page_", "_page", "_p", "-", "-page-")
"""Words between a document's name and a page's number, likeliest first."""
_MOST_NAMED = 5


class PredictionError(DsocrError):
    """A folder, or a page of it, that cannot be had; says why and what to give."""


@dataclass(frozen=True)
class Prediction:
    """A text of a page."""

    name: str
    """Name of the page as far as the files say: a relative path without the suffix of the text."""
    text: str
    file: Path

    @property
    def has_markup(self) -> bool:
        """True where it is as the model wrote it, with its boxes."""
        return "<|ref|>" in self.text or "<|det|>" in self.text


@dataclass(frozen=True)
class FolderContents:
    """All there is in a folder."""

    root: Path
    predictions: Sequence[Prediction]
    skipped: Sequence[tuple[Path, str]]
    """Files that give no text, each with the reason."""


def read_folder(root: Path) -> FolderContents:
    """The texts in a folder and below it, links not followed. Raises PredictionError where there is none."""
    if not root.is_dir():
        raise PredictionError(f"{name_text(root)}: there is no such folder; give one that a program wrote")
    found: list[Prediction] = []
    skipped: list[tuple[Path, str]] = []
    left = TOTAL_LIMIT
    for file, name in _texts(root, skipped):
        try:
            text = _text(file)
            if (left := left - len(text)) < 0:
                raise InvalidFile(f"the texts of the folder have more than {TOTAL_LIMIT:,} bytes together")
            found.append(Prediction(name, text, file))
        except InvalidFile as error:
            skipped.append((file, str(error)))
    if not found:
        reason = next((f" ({name_text(file.name)}: {why})" for file, why in skipped), "")
        endings = ", ".join(TEXT_SUFFIXES)
        raise PredictionError(f"{name_text(root)}: has no text of a page{reason}; texts end in {endings}")
    return FolderContents(root, found, skipped)


def _texts(root: Path, skipped: list[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Files with one page each, and the page's name; of two of a page the one with boxes."""
    looked_at = 0
    errors: list[OSError] = []
    for place, folders, names in os.walk(root, onerror=errors.append):
        directory = Path(place)
        below = directory.relative_to(root)
        folders[:] = sorted(folder for folder in folders if folder != "images")  # crops of a page
        if len(below.parts) >= DEPTH_LIMIT and folders:
            skipped.append((directory / folders[0], f"deeper than {DEPTH_LIMIT} folders"))
            folders.clear()
        looked_at += len(names) + len(folders)
        if looked_at > FILE_LIMIT:
            skipped.append((directory, f"more than {FILE_LIMIT:,} files: stopped here"))
            return
        if (whole := next((name for name in (_RAW, _CLEAN) if name in names), None)) is not None:
            yield directory / whole, str(below) if below.parts else root.resolve().name  # its folder's page
        files = [PurePath(name) for name in sorted(names) if PurePath(name).suffix.lower() in TEXT_SUFFIXES]
        stems = {file.stem for file in files}
        for file in files:
            if file.name in (_RAW, _CLEAN) or f"{file.stem}{_WITH_BOXES}" in stems:
                continue
            yield directory / file, str(below / file.stem.removesuffix(_WITH_BOXES))
    skipped += [(Path(each.filename), f"cannot be read ({each.strerror})") for each in errors]


def _text(file: Path) -> str:
    """A file's text; "" of an empty one, a page on which nothing was read. Raises InvalidFile."""
    try:
        text = plain_text(read_bytes(file, TEXT_LIMIT))
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    except InvalidFile as error:
        if str(error) == "empty":
            return ""
        raise
    if PAGE_END in text:  # pages may be missing from it, so that text k need not be of page k
        raise InvalidFile("has several pages; write one file a page, like paper_3.md")
    return text


# --- names ------------------------------------------------------------------------------------------


def without_suffix(document: str) -> str:
    """A document's name without the suffix that pages of documents come from, in any case."""
    path = PurePath(document)
    return str(path.with_suffix("")) if path.suffix.lower() in (PDF_SUFFIX, *IMAGE_SUFFIXES) else document


def _page_of(source: str) -> tuple[str | None, int]:
    """The document's name without its suffix and the page's number, of `paper.pdf#3`; None of others."""
    document, mark, digits = normalize("NFC", source).rpartition("#")
    if not mark or not (digits.isdecimal() and digits.isascii()):
        return None, 0
    return without_suffix(document), int(digits)


@dataclass(frozen=True)
class UnmatchedTexts:
    """Files and texts of a folder that belong to none of the pages that were asked for."""

    texts: tuple[str, ...]
    """Names of texts, safe to show."""
    files: tuple[tuple[str, str], ...]
    """Files that are not read, each with the reason."""

    def __bool__(self) -> bool:
        return bool(self.texts or self.files)

    def document(self) -> dict[str, Any]:
        """All of it, for a JSON document."""
        files = [{"name": name, "reason": reason} for name, reason in self.files]
        return {"texts": list(self.texts), "files": files}

    def lines(self) -> list[str]:
        """For people: how many, and the first of them."""
        lines = [f"not taken: {name} ({reason})" for name, reason in self.files[:_MOST_NAMED]]
        if (more := len(self.files) - _MOST_NAMED) > 0:
            lines.append(f"{more} more files not taken")
        if not self.texts:
            return lines
        more = len(self.texts) - _MOST_NAMED
        names = ", ".join(self.texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return [f"{plural(len(self.texts), 'text')} of no page that was read: {names}", *lines]


class TextMatcher:
    """The texts of a folder by page. Thread-safe."""

    def __init__(self, found: FolderContents) -> None:
        self.found = found
        self._given: set[int] = set()
        self._shared: dict[str, list[str]] = {}
        """Pages whose text is that of others by its name, too, and these."""
        self._texts: dict[str | tuple[str, str, int], list[Prediction]] = {}
        """Texts by name, with and without its folders; numbered ones by document, form and number too."""
        for text in found.predictions:
            whole = normalize("NFC", text.name)
            for name in dict.fromkeys((whole, PurePath(whole).name)):
                self._texts.setdefault(name, []).append(text)
                if (match := _NUMBERED.fullmatch(name)) is not None:
                    numbered = without_suffix(match[1]), match[2], int(match[3])
                    self._texts.setdefault(numbered, []).append(text)

    def expect(self, sources: Iterable[str]) -> None:
        """Find the texts that the names of several of these pages lead to: no page gets such a text.

        A page in the text's own folder has it before pages of other folders.
        """
        claims: dict[int, list[str]] = {}
        own = {source: of[0] for source in sources if len(of := self._candidates(source)) == 1}
        for source in sources:
            document, _ = _page_of(source)
            # A text that is named like a whole document may be of any of its pages.
            like = [] if document is None else self._texts.get(PurePath(document).name, [])
            for text in [own[source]] if source in own else like:
                claims.setdefault(id(text), []).append(source)
        shared = {}
        for source, text in own.items():
            folder, by = PurePath(text.name).parent, claims[id(text)]
            if len(by) > 1 and [each for each in by if PurePath(each).parent == folder] != [source]:
                shared[source] = [each for each in by if each != source]
        self._shared = shared

    def text_of(self, source: str) -> Prediction:
        """The text of a page of that name. Raises PredictionError where there is none, or several may be."""
        found = self._candidates(source)
        if not found:
            document, number = _page_of(source)
            name = PurePath(source).stem if document is None else f"{PurePath(document).name}_{number}"
            has = f"{name_text(self.found.root)} has no text of that name"
            raise PredictionError(f"{source}: {has}; name it like the page, as in {name}.md")
        files = ", ".join(name_text(each.file.name) for each in found[:3])
        if len(found) > 1:
            has = f"{name_text(self.found.root)} has {len(found)} texts of that name"
            raise PredictionError(f"{source}: {has} ({files})")
        if others := ", ".join(self._shared.get(source, [])[:_MOST_NAMED]):
            why = f"not known whether {files} is its text or that of {others}"
            raise PredictionError(f"{source}: {why}; name one for each, as in {PurePath(source).name}.md")
        self._given.add(id(found[0]))
        return found[0]

    def has(self, source: str) -> bool:
        """Tell whether there is a text of that name, or several."""
        return bool(self._candidates(source))

    def unmatched(self) -> UnmatchedTexts:
        """The texts that no page has taken so far, and the files that are not read."""
        texts = [name_text(each.name) for each in self.found.predictions if id(each) not in self._given]
        files = [(name_text(file.name), reason) for file, reason in self.found.skipped]
        return UnmatchedTexts(tuple(texts), tuple(files))

    def _candidates(self, source: str) -> list[Prediction]:
        """The texts of the likeliest name of the page's that any has, those in no other folder first."""
        document, number = _page_of(source)
        name = normalize("NFC", source)
        stem = without_suffix(name)
        plain = [name, stem, f"{stem}_pg1_repeat1", f"{stem}_pg1"] if document is None else [document]
        for key in dict.fromkeys(name for each in plain for name in (each, PurePath(each).name)):
            # A set that counts from 0 does so for all pages of a document.
            forms = [(key, form, number - ((key, form, 0) in self._texts)) for form in _FORMS]
            for of in [key] if document is None else forms:
                if found := self._texts.get(of, []):
                    return [each for each in found if normalize("NFC", each.name).startswith(key)] or found
        return []
