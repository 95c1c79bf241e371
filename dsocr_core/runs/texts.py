"""Texts that another program wrote into a folder, each for the page whose name it has."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
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
TEXT_LIMIT = 64 * 1024 * 1024
"""Bytes of a file of text."""
TEXT_SUFFIXES = (".md", ".mmd", ".markdown", ".txt")
PAGE_END = "\n\n<--- Page Split --->\n"
"""Line that the vendor's PDF script writes after each page."""
_RAW, _CLEAN, _WITH_BOXES = "result_ori.mmd", "result.mmd", "_det"
_NUMBERED = re.compile(r"(.+?)[#_-](?:pg|page[_-]?|p)?(\d{1,9})(?:_repeat1)?", re.DOTALL)
"""A document's name and a page's number behind it."""
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


def read_folder(root: Path) -> TextMatcher:
    """The texts in a folder and below it, links not followed. Raises PredictionError where there is none."""
    if not root.is_dir():
        raise PredictionError(f"{name_text(root)}: there is no such folder; give one that a program wrote")
    found: list[Prediction] = []
    skipped: list[tuple[Path, str]] = []
    for file, name in _texts(root, skipped):
        try:
            found.append(Prediction(name, _text(file), file))
        except InvalidFile as error:
            skipped.append((file, str(error)))
    if not found:
        reason = next((f" ({name_text(file.name)}: {why})" for file, why in skipped), "")
        endings = ", ".join(TEXT_SUFFIXES)
        raise PredictionError(f"{name_text(root)}: has no text of a page{reason}; texts end in {endings}")
    return TextMatcher(root, found, skipped)


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
    if file.is_file() and not file.is_symlink() and not file.stat().st_size:
        return ""
    try:
        text = plain_text(read_bytes(file, TEXT_LIMIT))
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    if PAGE_END in text:  # pages may be missing from it, so that text k need not be of page k
        raise InvalidFile("has several pages; write one file a page, like paper_3.md")
    return text


# --- names ------------------------------------------------------------------------------------------


def without_suffix(document: str) -> str:
    """A document's name without the suffix that pages of documents come from, in any case."""
    path = PurePath(document)
    return str(path.with_suffix("")) if path.suffix.lower() in (PDF_SUFFIX, *IMAGE_SUFFIXES) else document


def _plain(name: str) -> str:
    """A name without its document's suffix, the number of a page behind a `#`: `paper_pg3` as `paper#3`."""
    if (match := _NUMBERED.fullmatch(name)) is None:
        return without_suffix(name)
    return f"{without_suffix(match[1])}#{int(match[2])}"


def _names(source: str, texts: Container[str]) -> list[str]:
    """Possible names of a page's text, the likeliest first. `texts` has the names that exist."""
    document, mark, digits = source.rpartition("#")
    if not mark or not (digits.isdecimal() and digits.isascii()):
        return [source, without_suffix(source)]
    document = without_suffix(document)
    # A set that has a page 0 counts from it.
    return [source, f"{document}#{int(digits) - (f'{document}#0' in texts)}"]


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
        found = [f"not taken: {name} ({reason})" for name, reason in self.files]
        lines = found[:_MOST_NAMED]
        if len(found) > _MOST_NAMED:
            lines.append(f"{len(found) - _MOST_NAMED} more files not taken")
        if self.texts:
            names, more = ", ".join(self.texts[:_MOST_NAMED]), len(self.texts) - _MOST_NAMED
            names += f" and {more} more" if more > 0 else ""
            lines.insert(0, f"{plural(len(self.texts), 'text')} of no page that was read: {names}")
        return lines


class TextMatcher:
    """The texts of a folder by page: by the page's path, else by its name in any folder. Thread-safe."""

    def __init__(
        self, root: Path, predictions: Sequence[Prediction], skipped: Sequence[tuple[Path, str]]
    ) -> None:
        """`skipped` are files that give no text, each with the reason."""
        self.root, self.predictions, self.skipped = root, predictions, skipped
        self._given: set[int] = set()
        self._claimed: dict[int, list[tuple[bool, str]]] = {}
        """Pages that a text is found for: whether by their path, and their names."""
        self._by_path: dict[str, list[Prediction]] = {}
        self._by_name: dict[str, list[Prediction]] = {}
        for text in predictions:
            path = normalize("NFC", text.name)
            for texts, name in ((self._by_path, path), (self._by_name, PurePath(path).name)):
                for form in {name, _plain(name)}:
                    texts.setdefault(form, []).append(text)

    def expect(self, sources: Iterable[str]) -> None:
        """Find the texts that several of these pages lead to: only one that has its path gets such a text."""
        self._claimed = {}
        for source in sources:
            found, by_path = self._candidates(source)
            for text in found if len(found) == 1 else ():
                self._claimed.setdefault(id(text), []).append((by_path, source))

    def text_of(self, source: str) -> Prediction:
        """The text of a page of that name. Raises PredictionError where there is none, or several may be."""
        found, by_path = self._candidates(source)
        if len(found) != 1:
            files = ", ".join(name_text(each.file.name) for each in found[:3])
            has = f"{name_text(self.root)} has {len(found) or 'no'} text{'s' * bool(found)} of that name"
            name = PurePath(_names(source, ())[1]).name.replace("#", "_")
            way_out = f" ({files})" if found else f"; name it like the page, as in {name}.md"
            raise PredictionError(f"{source}: {has}{way_out}")
        claims = self._claimed.get(id(found[0]), [])
        if others := [name for by, name in claims if name != source and (by or not by_path)]:
            why = f"{name_text(found[0].file.name)} is its text or that of {', '.join(others[:_MOST_NAMED])}"
            way_out = f"name one for each, as in {PurePath(source).name}.md"
            raise PredictionError(f"{source}: not known whether {why}; {way_out}")
        self._given.add(id(found[0]))
        return found[0]

    def has(self, source: str) -> bool:
        """Tell whether there is a text of that name, or several."""
        return bool(self._candidates(source)[0])

    def unmatched(self) -> UnmatchedTexts:
        """The texts that no page has taken so far, and the files that are not read."""
        texts = [name_text(each.name) for each in self.predictions if id(each) not in self._given]
        files = [(name_text(file.name), reason) for file, reason in self.skipped]
        return UnmatchedTexts(tuple(texts), tuple(files))

    def _candidates(self, source: str) -> tuple[list[Prediction], bool]:
        """The texts of a page's likeliest name, and whether they have its path."""
        path = normalize("NFC", source)
        for texts, name in ((self._by_path, path), (self._by_name, PurePath(path).name)):
            for form in _names(name, texts):
                if form in texts:
                    return texts[form], texts is self._by_path
        return [], False
