"""Output folders of the vendor's `infer(save_results=True)`: one page's picture and its Markdown.

The folder does not have the raw text with its boxes, nor the page's name, nor any time. So it gives a
picture and a text to compare, under the folder's name, and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from dsocr_core.history.importers.gallery import folder_name, page_files
from dsocr_core.history.importers.imported import ImportedRun, Skipped, content_id
from dsocr_core.history.importers.reading import (
    FILE_TIME_NOTE,
    PICTURE_LIMIT,
    Refused,
    clean,
    digest,
    file_time,
    read_bytes,
)
from dsocr_core.history.record import RunRecord
from dsocr_core.outputs.artifacts import INFO, RESULT_IMAGE, RESULT_MMD
from dsocr_core.records import VENDOR

OWN_FOLDERS = ("images",)


def is_vendor_folder(directory: Path) -> bool:
    """Whether a folder is one page's output and not a page of a run directory, which has an info.json."""
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
    page = clean(directory.resolve().name) or "page"
    record = RunRecord(
        id=content_id(
            "vendor", {name: digest(read_bytes(file, PICTURE_LIMIT)) for name, file in files.items()}
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
        tables={"images": ({"page": page, "backend": VENDOR},)},
        files={f"{folder}/{name}": file for name, file in files.items()},
        skipped=tuple(Skipped(file, reason) for file, reason in refused),
        looked_at=frozenset(files.values()) | {file for file, _ in refused},
    )
