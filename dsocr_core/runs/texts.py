"""Texts that another program wrote into a folder, each for the page whose name it has."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from unicodedata import normalize

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX

FILE_LIMIT, TEXT_LIMIT = 50_000, 64 * 1024 * 1024
"""Files of texts in a folder, and bytes of one."""
TEXT_SUFFIXES = (".md", ".mmd", ".markdown", ".txt")
PAGE_END = "\n\n<--- Page Split --->\n"
"""Line that the vendor's PDF script writes after each page."""
_OF_FOLDER = {"result_ori.mmd": 1, "result.mmd": 0}
"""Files whose page is their folder: that with boxes counts."""
_WITH_BOXES = "_det"
_NUMBERED = re.compile(r"(.+?)[#_-](?:pg|page[_-]?|p)?(\d{1,9})(?:_repeat1)?", re.DOTALL)
"""A document's name and a page's number behind it."""


@dataclass(frozen=True)
class Prediction:
    """A text of a page."""

    name: str  # name of the page as far as the files say: a relative path without the suffix of the text
    text: str
    file: Path

    @property
    def has_markup(self) -> bool:
        """True where it is as the model wrote it, with its boxes."""
        return "<|ref|>" in self.text or "<|det|>" in self.text


def read_folder(root: Path) -> TextMatcher:
    """The texts in a folder and below it, links not followed. Raises DsocrError where there is none."""
    if not root.is_dir():
        raise DsocrError(f"{name_text(root)}: there is no such folder; give one that a program wrote")
    pages: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    unread: list[OSError] = []
    folders = os.walk(root, onerror=unread.append)
    files = (Path(place, name) for place, _, names in folders for name in sorted(names))
    for number, file in enumerate(file for file in files if file.suffix.lower() in TEXT_SUFFIXES):
        if number == FILE_LIMIT:
            raise DsocrError(f"{name_text(root)}: more than {FILE_LIMIT:,} texts; give a part of it")
        below = file.parent.relative_to(root)
        if file.name in _OF_FOLDER:
            page = str(below) if below.parts else root.resolve().name
            pages[page].append((_OF_FOLDER[file.name], file))
        else:
            page = str(below / file.stem.removesuffix(_WITH_BOXES))
            pages[page].append((file.stem.endswith(_WITH_BOXES), file))
    found: list[Prediction] = []
    skipped = [f"{name_text(each.filename)}: {each.strerror}" for each in unread]
    for page, texts in sorted(pages.items()):
        for rank, file in texts:
            if rank == max(texts)[0]:
                try:
                    found.append(Prediction(page, _text(file), file))
                except InvalidFile as error:
                    skipped.append(f"{name_text(file.name)}: {error}")
    if not found:
        reason, endings = f" ({skipped[0]})" if skipped else "", ", ".join(TEXT_SUFFIXES)
        raise DsocrError(f"{name_text(root)}: has no text of a page{reason}; texts end in {endings}")
    return TextMatcher(root, found, skipped)


def _text(file: Path) -> str:
    """A file's text; "" of an empty one, a page on which nothing was read. Raises InvalidFile."""
    if file.is_file() and not file.is_symlink() and not file.stat().st_size:
        return ""
    try:
        text = read_bytes(file, TEXT_LIMIT).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    if PAGE_END in text:  # pages may be missing from it, so that text k need not be of page k
        raise InvalidFile("has several pages; write one file a page, like paper_3.md")
    return text


# --- names ------------------------------------------------------------------------------------------


def _without_suffix(document: str) -> str:
    path = PurePath(document)
    return str(path.with_suffix("")) if path.suffix.lower() in (PDF_SUFFIX, *IMAGE_SUFFIXES) else document


def _plain(name: str) -> str:
    """A name without its document's suffix, the number of a page behind a `#`: `paper_pg3` as `paper#3`."""
    if (match := _NUMBERED.fullmatch(name)) is None:
        return _without_suffix(name)
    return f"{_without_suffix(match[1])}#{int(match[2])}"


def _names(source: str, texts: Container[str]) -> list[str]:
    """Possible names of a page's text, the likeliest first. `texts` has the names that exist."""
    document, mark, digits = source.rpartition("#")
    if not mark or not (digits.isdecimal() and digits.isascii()):
        return [source, _without_suffix(source)]
    document = _without_suffix(document)
    # A set that has a page 0 counts from it.
    return [source, f"{document}#{int(digits) - (f'{document}#0' in texts)}"]


class TextMatcher:
    """The texts of a folder by page: by the page's path, else by its name in any folder. Thread-safe."""

    def __init__(self, root: Path, predictions: Sequence[Prediction], skipped: Sequence[str]) -> None:
        """`skipped` are files that give no text, each with the reason."""
        self.root, self.predictions, self._skipped = root, predictions, skipped
        self._read: set[int] = set()
        self._claims: dict[int, list[tuple[bool, str]]] = {}
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
        self._claims = {}
        for source in sources:
            found, by_path = self._candidates(source)
            for text in found if len(found) == 1 else ():
                self._claims.setdefault(id(text), []).append((by_path, source))

    def text_of(self, source: str) -> Prediction:
        """The text of a page of that name. Raises DsocrError where there is none, or several may be."""
        found, by_path = self._candidates(source)
        if len(found) != 1:
            has = f"{name_text(self.root)} has {len(found) or 'no'} text{'s' * bool(found)} of that name"
            name = PurePath(_names(source, ())[1]).name.replace("#", "_")
            raise DsocrError(f"{source}: {has}; name it like the page, as in {name}.md")
        claims = self._claims.get(id(found[0]), [])
        if others := [name for by, name in claims if name != source and (by or not by_path)]:
            why = f"{name_text(found[0].file.name)} is its text or that of {others[0]}"
            way_out = f"name one for each, as in {PurePath(source).name}.md"
            raise DsocrError(f"{source}: not known whether {why}; {way_out}")
        self._read.add(id(found[0]))
        return found[0]

    def has(self, source: str) -> bool:
        """Tell whether there is a text of that name, or several."""
        return bool(self._candidates(source)[0])

    def left_over(self) -> Mapping[str, Sequence[str]]:
        """Texts that no page has asked for so far, and files that are not read with the reasons, by kind."""
        texts = [name_text(each.name) for each in self.predictions if id(each) not in self._read]
        found = {"texts_of_no_page": texts, "files_not_read": self._skipped}
        return {what: names for what, names in found.items() if names}

    def _candidates(self, source: str) -> tuple[list[Prediction], bool]:
        """The texts of a page's likeliest name, and whether they have its path."""
        path = normalize("NFC", source)
        for texts, name in ((self._by_path, path), (self._by_name, PurePath(path).name)):
            for form in _names(name, texts):
                if form in texts:
                    return texts[form], texts is self._by_path
        return [], False
