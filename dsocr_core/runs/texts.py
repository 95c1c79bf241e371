"""Texts that another program wrote into a folder, each for the page whose name it has."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, plain_text, read_bytes
from dsocr_core.base.errors import DsocrError
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
    has_markup: bool
    """True where it is as the model wrote it, with its boxes."""
    file: Path
    writer: str
    """The program that leaves such files, in words."""


@dataclass(frozen=True)
class SkippedFile:
    """A file that gives no text, and why."""

    file: Path
    reason: str


@dataclass(frozen=True)
class FolderContents:
    """All there is in a folder."""

    root: Path
    predictions: tuple[Prediction, ...]
    skipped: tuple[SkippedFile, ...]


# --- a folder ---------------------------------------------------------------------------------------


def read_folder(root: Path) -> FolderContents:
    """The texts in a folder and below it, links not followed. Raises PredictionError where there is none."""
    if not root.is_dir():
        why = (
            "is no folder; give the folder that a program wrote into"
            if root.exists()
            else "there is no such folder"
        )
        raise PredictionError(f"{name_text(root)}: {why}")
    found: list[Prediction] = []
    skipped: list[SkippedFile] = []
    left = TOTAL_LIMIT
    for file, name, writer in _texts(root, skipped):
        try:
            text = _text(file)
            if (left := left - len(text)) < 0:
                raise InvalidFile(f"the texts of the folder have more than {TOTAL_LIMIT:,} bytes together")
            found.append(Prediction(name, text, "<|ref|>" in text or "<|det|>" in text, file, writer))
        except InvalidFile as error:
            skipped.append(SkippedFile(file, str(error)))
    if not found:
        reason = next((f" ({name_text(each.file.name)}: {each.reason})" for each in skipped), "")
        raise PredictionError(
            f"{name_text(root)}: has no text of a page{reason}; texts end in {', '.join(TEXT_SUFFIXES)}"
        )
    return FolderContents(root, tuple(found), tuple(skipped))


def _texts(root: Path, skipped: list[SkippedFile]) -> Iterator[tuple[Path, str, str]]:
    """Files with one page each, the page's name and the writer; of two of a page the one with boxes."""
    looked_at = 0
    errors: list[OSError] = []
    for place, folders, names in os.walk(root, onerror=errors.append):
        directory = Path(place)
        below = directory.relative_to(root)
        folders[:] = sorted(folder for folder in folders if folder != "images")  # crops of a page
        if len(below.parts) >= DEPTH_LIMIT and folders:
            skipped.append(SkippedFile(directory / folders[0], f"deeper than {DEPTH_LIMIT} folders"))
            folders.clear()
        looked_at += len(names) + len(folders)
        if looked_at > FILE_LIMIT:
            skipped.append(SkippedFile(directory, f"more than {FILE_LIMIT:,} files: stopped here"))
            return
        files = [directory / name for name in sorted(names) if Path(name).suffix.lower() in TEXT_SUFFIXES]
        whole = next((directory / name for name in (_RAW, _CLEAN) if name in names), None)
        if whole is not None:  # one page, named by its folder
            yield whole, str(below) if below.parts else root.resolve().name, "run_dpsk_ocr_image.py"
        raw = {
            file.stem for file in files if file.stem.endswith(_WITH_BOXES) and file.suffix in (".md", ".mmd")
        }
        for file in files:
            if file.name in (_RAW, _CLEAN) or f"{file.stem}{_WITH_BOXES}" in raw:
                continue
            name = file.stem.removesuffix(_WITH_BOXES) if file.stem in raw else file.stem
            yield file, str(below / name), "run_dpsk_ocr_eval_batch.py" if file.stem in raw else "Markdown"
    skipped += [SkippedFile(Path(each.filename), f"cannot be read ({each.strerror})") for each in errors]


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
    document, mark, digits = unicodedata.normalize("NFC", source).rpartition("#")
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
        lines = []
        if count := len(self.texts):
            more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
            names = ", ".join(self.texts[:_MOST_NAMED])
            lines.append(f"{count} text{'s' * (count > 1)} of no page that was read: {names}{more}")
        lines += [f"not taken: {name} ({reason})" for name, reason in self.files[:_MOST_NAMED]]
        if len(self.files) > _MOST_NAMED:
            lines.append(f"{len(self.files) - _MOST_NAMED} more files not taken")
        return lines


class TextMatcher:
    """The texts of a folder by page. Thread-safe."""

    def __init__(self, found: FolderContents) -> None:
        self.found = found
        self._lock = threading.Lock()
        self._given: set[int] = set()
        self._shared: dict[str, list[str]] = {}
        """Pages whose text is that of others by its name, too, and these."""
        self._by_name: dict[str, list[Prediction]] = {}
        self._numbered: dict[tuple[str, str], dict[int, list[Prediction]]] = {}
        for prediction in found.predictions:
            whole = unicodedata.normalize("NFC", prediction.name)
            for name in dict.fromkeys((whole, PurePath(whole).name)):
                self._by_name.setdefault(name, []).append(prediction)
                if (match := _NUMBERED.fullmatch(name)) is not None:
                    pages = self._numbered.setdefault((without_suffix(match[1]), match[2]), {})
                    pages.setdefault(int(match[3]), []).append(prediction)

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
                claims.setdefault(id(text), {})[source] = (
                    PurePath(text.name).parent == PurePath(source).parent
                )
        with self._lock:
            self._shared = {}
            for source, text in own.items():
                by = claims[id(text)]
                if len(by) > 1 and not (by[source] and sum(by.values()) == 1):
                    self._shared[source] = [each for each in by if each != source]

    def text_of(self, source: str) -> Prediction:
        """The text of a page of that name. Raises PredictionError where there is none, or several may be."""
        document, number = _page_of(source)
        with self._lock:
            if (prediction := self._named(source)) is None:
                name = PurePath(source).stem if document is None else f"{PurePath(document).name}_{number}"
                raise PredictionError(
                    f"{source}: {name_text(self.found.root)} has no text of that name; name it like the "
                    f"page, as in {name}.md"
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

    def unmatched(self) -> UnmatchedTexts:
        """The texts that no page has taken so far, and the files that are not read."""
        with self._lock:
            texts = [each.name for each in self.found.predictions if id(each) not in self._given]
        files = ((name_text(each.file.name), each.reason) for each in self.found.skipped)
        return UnmatchedTexts(tuple(map(name_text, texts)), tuple(files))

    def _named(self, source: str) -> Prediction | None:
        for key, candidates in self._candidates(source):
            exact = [each for each in candidates if unicodedata.normalize("NFC", each.name).startswith(key)]
            chosen = exact or candidates
            if len(chosen) > 1:
                files = ", ".join(name_text(each.file.name) for each in chosen[:3])
                raise PredictionError(
                    f"{source}: {name_text(self.found.root)} has {len(chosen)} texts of that name ({files})"
                )
            if chosen:
                return chosen[0]
        return None

    def _candidates(self, source: str) -> Iterator[tuple[str, list[Prediction]]]:
        """Names that the page's text may have, likeliest first, with the texts that are called so."""
        document, number = _page_of(source)
        if document is None:
            name = unicodedata.normalize("NFC", source)
            stem = without_suffix(name)
            for each in dict.fromkeys((name, stem, f"{stem}_pg1_repeat1", f"{stem}_pg1")):
                for key in dict.fromkeys((each, PurePath(each).name)):
                    yield key, self._by_name.get(key, [])
            return
        for key in dict.fromkeys((document, PurePath(document).name)):
            for form in _FORMS:
                pages = self._numbered.get((key, form), {})
                # One that counts from 0 does so for all pages of a document.
                yield key, pages.get(number - (0 in pages), [])
