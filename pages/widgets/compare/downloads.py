"""Everything about one comparison in one archive, made in memory when it is asked for."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.records import to_jsonable
from pages.widgets.compare import tables
from pages.widgets.components.viewer.payload import Pairing
from pages.widgets.shared import csv, reading

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison


def listing(comparison: Comparison) -> list[str]:
    """Names in the archive, without the pictures that a backend cut out."""
    names = []
    for backend in ("a", "b"):
        if getattr(comparison, backend):
            names += [f"{backend}/{name}" for name in ("result.mmd", "result_with_boxes.jpg", "info.json")]
    if comparison.report is not None:
        names.append("parity.json")
    return [*names, "boxes.csv", "timings.csv"]


def archive(comparison: Comparison, rows: list[Pairing]) -> bytes:
    """The zip. Raises DsocrError when the page cannot be read any more."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        results = [result for result in (comparison.a, comparison.b) if result]
        for result in results:
            with tempfile.TemporaryDirectory() as folder:
                written = reading.write_files(result, Path(folder))
                for file in sorted(path for path in written.rglob("*") if path.is_file()):
                    target.write(file, f"{result.backend}/{file.relative_to(written)}")
        if comparison.report is not None:
            target.writestr(
                "parity.json", json.dumps(to_jsonable(comparison.report), indent=2, ensure_ascii=False)
            )
        table = tables.box_table([(row.state, row.a, row.b, row.iou, row.shift_percent) for row in rows])
        target.writestr("boxes.csv", csv.box_csv(table))
        target.writestr("timings.csv", tables.timing_spans(results).to_csv(index=False))
    return buffer.getvalue()
