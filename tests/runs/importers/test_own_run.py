"""Exported runs whose tables are not what they say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.runs.checksums import CHECKSUMS
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from tests.support.made_up_runs import timing, write_run


@pytest.mark.parametrize(
    "column", [{"a": 1}, b"\xff\xfe", [["x"]], {"a": {"b": None}}], ids=["struct", "bytes", "lists", "deep"]
)
def test_a_column_of_another_type_costs_its_run_alone(column: object, tmp_path: Path) -> None:
    for name in ("odd", "whole"):
        write_run(tmp_path / "there", name, [timing("page", "decode", 1.0)])
    run = tmp_path / "there" / "runs" / "odd"
    (run / CHECKSUMS).unlink()
    table = pq.read_table(run / "readings.parquet")
    place = table.column_names.index("text_raw")
    pq.write_table(
        table.set_column(place, "text_raw", pa.array([column] * len(table))), run / "readings.parquet"
    )
    with History(tmp_path / "here") as history:
        report = import_paths(history, [tmp_path / "there" / "runs"])
        assert [taken.run_id for taken in report.imported] == ["whole"]
        assert history.run_ids() == ["whole"]
        (skipped,) = report.skipped
        assert skipped.path.is_relative_to(run) and "\n" not in skipped.reason
