"""Everything about one comparison in one archive, made in memory when it is asked for."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.errors import DsocrError
from dsocr_core.page.documents import load_image
from dsocr_core.reading.artifacts import write_page
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.runs.labels import short
from pages.widgets.pair import tables
from pages.widgets.pair.shown import Pairing
from pages.widgets.shared.table import csv_of

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison
    from dsocr_core.reading.records import OcrResult, Side


def folder_of(side: Side, result: OcrResult) -> str:
    """Name the folder of a side's files in the archive: "a-eager"."""
    name = "".join(sign if sign.isalnum() or sign in "._" else "_" for sign in short(result.backend, 40))
    return f"{side}-{name}"


def archive(comparison: Comparison, rows: list[Pairing]) -> bytes:
    """The zip. Raises DsocrError when the page cannot be read any more."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for side, result in comparison.results.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                try:
                    pages = [load_image(image) for image in result.request.images]
                    write_page(result, pages, folder)
                except OSError as error:
                    raise DsocrError(f"the files could not be written ({error.strerror or error})") from error
                for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                    target.write(file, f"{folder_of(side, result)}/{file.relative_to(folder)}")
        if comparison.report is not None:
            target.writestr(
                "parity.json", json.dumps(to_jsonable(comparison.report), indent=2, ensure_ascii=False)
            )
        target.writestr("boxes.csv", csv_of(tables.box_table(rows)))
        target.writestr("timings.csv", csv_of(tables.timing_spans(comparison.results)))
    return buffer.getvalue()
