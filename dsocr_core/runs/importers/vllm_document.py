"""Output folders of the vendor's vLLM script for a PDF: the raw texts of its pages, their layouts and crops.

The script leaves pages out without a trace, so a text's number is no page's number. Where `NAME.pdf` lies in
the folder, its pages are told by the layouts, which are pictures of the same pages; where it does not, or a
page cannot be told, the text is kept under its own number and the run says so. Counting places no text.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, read_bytes
from dsocr_core.page.documents import DEFAULT_MAX_PIXELS, DEFAULT_PDF_DPI
from dsocr_core.page.opener import count_pages, render_page
from dsocr_core.reading.artifacts import RESULT_IMAGE, RESULT_MMD
from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.postprocess import result_mmd
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.gallery import folder_name
from dsocr_core.runs.importers.imported import ImportedRun, Row, Skipped, content_id
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, PICTURE_LIMIT, clean, digest, file_time
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.rows import box_rows
from dsocr_core.runs.texts.by_name import ByName
from dsocr_core.runs.texts.folders import read_documents
from dsocr_core.runs.texts.prediction import LAYOUTS, PDF_CLEAN, PDF_RAW, Found, Prediction, PredictionError

OWN_FOLDERS = ("images",)
_DRAWN_DPI = 96
"""At which a page of the layouts has the pixels that it was drawn with."""
_MOST_PAGES = 2000
_CROP = re.compile(r"(\d{1,6})_(\d{1,6})\.jpg")


def is_documents(directory: Path) -> bool:
    """Tell whether a folder has the raw texts of a PDF."""
    return any(file.is_file() for file in directory.glob(f"*{PDF_RAW}"))


def unread_reason(file: Path) -> str:
    """Why a file of such a folder is not taken."""
    return (
        "a PDF is told from its layouts and not kept" if file.suffix == ".pdf" else "not a file of the script"
    )


def read_documents_of(directory: Path) -> list[ImportedRun]:
    """A run for each PDF whose raw texts are there. Raises Refused where none can be taken."""
    found = read_documents(directory)
    of_documents: dict[str, list[Prediction]] = {}
    for text in found.predictions:
        if text.piece is not None and text.file.name.endswith(PDF_RAW):
            of_documents.setdefault(text.piece.document, []).append(text)
    if not of_documents:
        raise Refused(
            "; ".join(f"{left.file.name}: {left.reason}" for left in found.left[:1]) or "no text in it"
        )
    return [_run(directory, document, texts) for document, texts in of_documents.items()]


def _run(directory: Path, document: str, texts: list[Prediction]) -> ImportedRun:
    numbers, note = _numbers(directory, document, texts)
    looked_at = {directory / f"{document}{end}" for end in (PDF_RAW, PDF_CLEAN, LAYOUTS)}
    images: list[Row] = []
    boxes: list[Row] = []
    files: dict[str, bytes | Path] = {}
    digests = {PDF_RAW: digest(read_bytes(texts[0].file, PICTURE_LIMIT))}
    skipped: list[Skipped] = []
    for text, number in zip(texts, numbers, strict=True):
        assert text.piece is not None
        title = f"{document}.pdf#{number}" if number else f"{document}.pdf, text {text.piece.index}"
        page = clean(title)
        row: dict[str, object] = {"page": page, "backend": VENDOR, "text_raw": text.text}
        folder = f"vendor/viz/{folder_name(page, page)}"
        files[f"{folder}/{RESULT_MMD}"] = result_mmd(text.text).encode()
        if (drawn := _drawn(text)) is not None:
            size, picture = drawn
            row |= {"width": size[0], "height": size[1]}
            boxes += box_rows(page, VENDOR, page_boxes(parse(text.text), size))
            files[f"{folder}/{RESULT_IMAGE}"] = picture
        images.append(row)
        for crop, name in _crops(directory, text.piece.index - 1):
            looked_at.add(crop)
            try:
                digests[f"images/{crop.name}"] = digest(read_bytes(crop, PICTURE_LIMIT))
                files[f"{folder}/images/{name}"] = crop
            except Refused as error:
                skipped.append(Skipped(crop, str(error), "vendor"))
    record = RunRecord(
        id=content_id("vendor", digests),
        created=file_time(texts[0].file),
        source="vendor",
        backends=(VENDOR,),
        notes=" ".join(filter(None, (FILE_TIME_NOTE, note))),
    )
    tables: dict[str, list[Row]] = {"images": images} | ({"boxes": boxes} if boxes else {})
    return ImportedRun(record, directory, tables, files, tuple(skipped), frozenset(looked_at))


def _numbers(directory: Path, document: str, texts: list[Prediction]) -> tuple[list[int | None], str]:
    """The page of the PDF that each text is of, None where it cannot be told, and what to say of that."""
    numbers: list[int | None] = [None] * len(texts)
    pdf = directory / f"{document}.pdf"
    if not pdf.is_file() or pdf.is_symlink():
        return (
            numbers,
            f"Which pages of {document}.pdf these are is not known: it does not lie in the folder.",
        )
    reasons = []
    given = ByName(Found(directory, tuple(texts), ()))
    try:
        count = min(count_pages(pdf), _MOST_PAGES)
    except (DsocrError, ValueError) as error:
        return numbers, f"Which pages of {document}.pdf these are is not known: {error}"
    for number in range(1, count + 1):
        try:
            text = given.text_of(
                f"{document}.pdf#{number}",
                lambda number=number: render_page(pdf, number, DEFAULT_PDF_DPI, DEFAULT_MAX_PIXELS),  # type: ignore[misc]
            )
            numbers[texts.index(text)] = number
        except (PredictionError, DsocrError) as error:
            reasons.append(str(error))
    told = sum(number is not None for number in numbers)
    if told == len(texts) == count:
        return numbers, ""
    rest = f" Of {count - told} no text could be told: {reasons[0]}." if reasons else ""
    return (
        numbers,
        f"{told} of {len(texts)} texts belong to pages of {document}.pdf, which has {count}.{rest}",
    )


def _drawn(text: Prediction) -> tuple[tuple[int, int], bytes] | None:
    """The page with its boxes, its size and a JPEG; None without layouts that fit."""
    piece = text.piece
    if piece is None or piece.layouts is None:
        return None
    try:
        if count_pages(piece.layouts) != piece.count:
            return None
        picture = render_page(piece.layouts, piece.index, _DRAWN_DPI, DEFAULT_MAX_PIXELS)
    except (DsocrError, ValueError):
        return None
    content = io.BytesIO()
    picture.save(content, format="JPEG", quality=90)
    return picture.size, content.getvalue()


def _crops(directory: Path, counter: int) -> list[tuple[Path, str]]:
    """The crops of the text with that counter, and the names they have on a page of its own."""
    images = directory / "images"
    if not images.is_dir() or images.is_symlink():
        return []
    found = []
    for file in sorted(images.glob(f"{counter}_*.jpg")):
        if (match := _CROP.fullmatch(file.name)) is not None:
            found.append((file, f"{match[2]}.jpg"))
    return found
