"""Output folders of the vendor's `infer(save_results=True)` and of its vLLM script for one image.

One page's picture and its Markdown; the vLLM script leaves the raw text with its boxes, too. Neither has the
page's name nor any time: the page goes under the folder's name.
"""

from __future__ import annotations

from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, read_bytes
from dsocr_core.page.documents import load_image
from dsocr_core.reading.artifacts import INFO, RESULT_IMAGE, RESULT_MMD
from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.gallery import folder_name, page_files
from dsocr_core.runs.importers.imported import ImportedRun, Row, Skipped, content_id
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    PICTURE_LIMIT,
    TEXT_LIMIT,
    as_text,
    clean,
    digest,
    file_time,
)
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.rows import box_rows
from dsocr_core.runs.texts.prediction import RAW

OWN_FOLDERS = ("images",)


def unread_reason(_file: Path) -> str:
    """Why a file of such a folder is not taken."""
    return "not a file of a vendor's output folder"


def is_vendor_folder(directory: Path) -> bool:
    """Tell whether a folder is one page's output and not a page of a run directory, which has an
    info.json.
    """
    return (
        (directory / RESULT_MMD).is_file()
        and ((directory / RESULT_IMAGE).is_file() or (directory / "images").is_dir())
        and not (directory / INFO).exists()
    )


def read_folder(directory: Path) -> ImportedRun:
    """The page in a folder for which `is_vendor_folder` is true. Raises Refused without its Markdown."""
    files, refused = page_files(directory)
    if RESULT_MMD not in files:
        reason = next((reason for file, reason in refused if file.name == RESULT_MMD), "gone")
        raise Refused(f"{RESULT_MMD}: {reason}")
    text, raw_digest, raw_refused = _raw_text(directory / RAW)
    raw = [directory / RAW] if raw_digest else []
    refused += raw_refused
    page = clean(directory.resolve().name) or "page"
    record = RunRecord(
        id=content_id(
            "vendor",
            {name: digest(read_bytes(file, PICTURE_LIMIT)) for name, file in files.items()} | raw_digest,
        ),
        created=file_time(directory / RESULT_MMD),
        source="vendor",
        backends=(VENDOR,),
        notes=FILE_TIME_NOTE,
    )
    folder = f"vendor/viz/{folder_name(page, page)}"
    return ImportedRun(
        record=record,
        origin=directory,
        tables=_tables(page, text, files.get(RESULT_IMAGE)),
        files={f"{folder}/{name}": file for name, file in files.items()},
        skipped=tuple(Skipped(file, reason) for file, reason in refused),
        looked_at=frozenset((*files.values(), *raw)) | {file for file, _ in refused},
    )


def _raw_text(file: Path) -> tuple[str | None, dict[str, str], list[tuple[Path, str]]]:
    """The raw text beside the clean one with its digest; None without it, or with why it is not taken."""
    if not file.is_file():
        return None, {}, []
    try:
        content = read_bytes(file, TEXT_LIMIT)
        return as_text(content), {RAW: digest(content)}, []
    except Refused as error:
        return None, {}, [(file, str(error))]


def _tables(page: str, text: str | None, picture: Path | None) -> dict[str, list[Row]]:
    row: Row = {"page": page, "backend": VENDOR}
    if text is None:
        return {"images": [row]}
    try:
        size = None if picture is None else load_image(picture).size
    except DsocrError:
        size = None
    if size is None:  # boxes in pixels of a page of unknown size cannot be
        return {"images": [{**row, "text_raw": text}]}
    full = {**row, "text_raw": text, "width": size[0], "height": size[1]}
    return {"images": [full], "boxes": box_rows(page, VENDOR, page_boxes(parse(text), size))}
