"""Everything about one comparison in one archive, made in memory when it is asked for."""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.page.documents import load_image
from dsocr_core.reading.artifacts import write_page
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.runs.labels import short
from pages.widgets.pair.tabs import block_table
from pages.widgets.shared.table import csv_of

if TYPE_CHECKING:
    from pages.widgets.pair.shown import PairView


def draw(shown: PairView) -> None:
    """Draw the download."""
    request = shown.comparison.request
    stem = request.name.rsplit(".", 1)[0] or "page"
    st.download_button(
        "Download all (zip)", lambda: archive(shown), f"{stem}-{request.preset}.zip", "application/zip",
        on_click="ignore", icon=":material/download:", key="download all",
        help="Texts, pages with boxes, cut images, parity.json and boxes.csv.",
    )  # fmt: skip


def archive(shown: PairView) -> bytes:
    """The zip. Raises DsocrError when the page cannot be read any more."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for side, result in shown.results.items():
            name = re.sub(r"[^\w.]", "_", short(result.backend, 40))
            within = f"{side}-{name}"  # "a-eager"
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                try:
                    pages = [load_image(image) for image in result.request.images]
                    write_page(result, pages, folder)
                except OSError as error:
                    raise DsocrError(f"the files could not be written ({error.strerror or error})") from error
                for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                    target.write(file, f"{within}/{file.relative_to(folder)}")
        if shown.report is not None:
            parity = json.dumps(to_jsonable(shown.report), indent=2, ensure_ascii=False)
            target.writestr("parity.json", parity)
        target.writestr("boxes.csv", csv_of(block_table(shown)))
    return buffer.getvalue()
