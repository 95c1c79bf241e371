"""A folder that another program has left, read within bounds: each text once, the one with boxes first."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePath

from dsocr_core.base.bounded_json import InvalidFile, Missing, plain_text, read_bytes
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX
from dsocr_core.runs.texts.prediction import (
    CLEAN,
    EVAL_WRITER,
    IMAGE_WRITER,
    PAGE_END,
    RAW,
    RAW_SUFFIX,
    Found,
    Left,
    Prediction,
    PredictionError,
)

FILE_LIMIT, DEPTH_LIMIT = 50_000, 4
"""Files of a folder, and folders below each other, that are looked at."""
TEXT_LIMIT = 64 * 1024 * 1024
"""Bytes of a file of text."""
TOTAL_LIMIT = 512 * 1024 * 1024
"""Bytes of all texts of a folder."""
TEXT_SUFFIXES = (".md", ".mmd", ".markdown", ".txt")
_OF_VLLM = (".md", ".mmd")
"""Suffixes of the vendor's vLLM scripts, which leave `NAME_det` with boxes and `NAME` without."""
_MARKS = ("<|ref|>", "<|det|>")
_PLAIN = "Markdown"


def read_folder(root: Path) -> Found:
    """The texts in a folder and below it. Raises PredictionError where there is none."""
    if not root.exists():
        beside = _beside(root)
        if not beside.predictions:
            raise PredictionError(f"{name_text(root)}: there is no such folder")
        return beside
    if not root.is_dir():
        raise PredictionError(f"{name_text(root)}: is no folder; give the folder that a program wrote into")
    reading = _Reading(root)
    reading.folder(root, 0)
    found = reading.found()
    if not found.predictions:
        beside = _beside(root)
        if beside.predictions:
            return beside
        reason = next((f" ({name_text(left.file.name)}: {left.reason})" for left in found.left), "")
        raise PredictionError(
            f"{name_text(root)}: has no text of a page{reason}; texts end in {', '.join(TEXT_SUFFIXES)}"
        )
    return found


def _beside(root: Path) -> Found:
    """Files of the evaluation script, which has no slash after its folder's name."""
    reading = _Reading(root)
    if root.name and root.parent.is_dir():
        files = [
            path for path in sorted(root.parent.iterdir())
            if path.name.startswith(root.name) and path.name != root.name and path.suffix == ".md"
        ]  # fmt: skip
        reading.texts([path for path in files[:FILE_LIMIT] if path.is_file()], cut=root.name)
    return reading.found()


class _Reading:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._predictions: list[Prediction] = []
        self._left: list[Left] = []
        self._looked_at = self._bytes = 0

    def found(self) -> Found:
        return Found(self._root, tuple(self._predictions), tuple(self._left))

    def folder(self, directory: Path, depth: int) -> None:
        if depth > DEPTH_LIMIT:
            self._left.append(Left(directory, f"deeper than {DEPTH_LIMIT} folders"))
            return
        folders, files = self._children(directory)
        names = {file.name for file in files}
        if RAW in names or CLEAN in names:
            self._one_page(directory, names)
            files = [file for file in files if file.name not in (RAW, CLEAN)]
        self.texts(files)
        for below in folders:
            if below.name != "images":  # crops of a page
                self.folder(below, depth + 1)

    def _children(self, directory: Path) -> tuple[list[Path], list[Path]]:
        folders, files = [], []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._looked_at += 1
                    if self._looked_at > FILE_LIMIT:
                        if self._looked_at == FILE_LIMIT + 1:
                            self._left.append(
                                Left(directory, f"more than {FILE_LIMIT:,} files: stopped here")
                            )
                        break
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        files.append(Path(entry.path))
        except OSError as error:
            self._left.append(Left(directory, f"cannot be read ({error.strerror})"))
        return sorted(folders), sorted(files)

    def _read(self, file: Path) -> str | None:
        """A file's text; "" of an empty one; None where it is named in `left`."""
        try:
            content = read_bytes(file, TEXT_LIMIT)
            self._bytes += len(content)
            if self._bytes > TOTAL_LIMIT:
                raise InvalidFile(f"the texts of the folder have more than {TOTAL_LIMIT:,} bytes together")
            return plain_text(content)
        except UnicodeDecodeError as error:
            self._left.append(Left(file, f"not UTF-8 text (byte {error.start})"))
        except Missing:
            self._left.append(Left(file, "gone"))
        except InvalidFile as error:
            if str(error) == "empty":  # a page on which nothing was read
                return ""
            self._left.append(Left(file, str(error)))
        return None

    def _add(self, name: str, text: str, file: Path, writer: str) -> None:
        if PAGE_END in text:  # pages may be missing from it, so that text k need not be of page k
            self._left.append(Left(file, "has several pages; write one file a page, like paper_3.md"))
            return
        has_markup = any(mark in text for mark in _MARKS)
        self._predictions.append(Prediction(name, text, has_markup, file, writer))

    def _one_page(self, directory: Path, names: set[str]) -> None:
        for name in (RAW, CLEAN):
            content = self._read(directory / name) if name in names else None
            if content is not None:
                folder = directory.resolve().name if directory == self._root else self._name(directory)
                self._add(folder, content, directory / name, IMAGE_WRITER)
                return

    def texts(self, files: list[Path], cut: str = "") -> None:
        """Files with one page each; of a name with and without `_det` the one with boxes."""
        raw = {file.stem for file in files if file.suffix in _OF_VLLM and file.stem.endswith(RAW_SUFFIX)}
        for file in files:
            stem = file.stem
            if file.suffix.lower() in TEXT_SUFFIXES:
                if f"{stem}{RAW_SUFFIX}" in raw and file.suffix in _OF_VLLM:
                    continue  # the same page without its boxes
                is_raw = file.suffix in _OF_VLLM and stem in raw
                name = stem.removesuffix(RAW_SUFFIX) if is_raw else stem
                self._text(file, name[len(cut) :], EVAL_WRITER if is_raw or cut else _PLAIN)
            elif file.suffix.lower() in IMAGE_SUFFIXES and self._is_text(file):
                self._text(file, file.name[len(cut) :], EVAL_WRITER)

    def _text(self, file: Path, name: str, writer: str) -> None:
        content = self._read(file)
        if content is not None:
            self._add(str(Path(self._name(file.parent), name)) if file.parent != self._root else name,
                      content, file, writer)  # fmt: skip

    def _name(self, directory: Path) -> str:
        """A folder's path below the root."""
        try:
            return str(directory.relative_to(self._root))
        except ValueError:
            return ""

    def _is_text(self, file: Path) -> bool:
        """Tell whether a file with an image's suffix is none: the beginning is text without a zero byte."""
        try:
            with file.open("rb") as handle:
                begin = handle.read(1024)
        except OSError:
            return False
        return bool(begin) and b"\0" not in begin and _is_utf8(begin)


def _is_utf8(begin: bytes) -> bool:
    try:
        begin.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(begin) - 4  # a character that the end cuts
    return True


_NUMBERED = re.compile(r"(.+?)(#|_pg|_page_|_page|_p|_|-page-|-)(\d{1,9})(?:_repeat1)?", re.DOTALL)
FORMS = ("#", "_", "_pg", "_page_", "_page", "_p", "-", "-page-")
"""Words between a document's name and a page's number, likeliest first."""


def same_name(name: str) -> str:
    """A name as every system writes it: NFC."""
    return unicodedata.normalize("NFC", name)


def without_suffix(document: str) -> str:
    """A document's name without the suffix that pages of documents come from, in any case."""
    path = PurePath(document)
    return str(path.with_suffix("")) if path.suffix.lower() in (PDF_SUFFIX, *IMAGE_SUFFIXES) else document


def numbered(name: str) -> tuple[str, str, int] | None:
    """A document's name without its suffix, the form, and the page's number, of `paper_page_003`."""
    match = _NUMBERED.fullmatch(same_name(name))
    return (without_suffix(match[1]), match[2], int(match[3])) if match else None


def page_names(source: str) -> Iterator[str]:
    """List the names that the text of a page, not one of a document, may have, likeliest first: `page.png`,
    `page`.
    """
    source = same_name(source)
    path = PurePath(source)
    stem = str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else source
    yield from dict.fromkeys((source, stem, f"{stem}_pg1_repeat1", f"{stem}_pg1"))
