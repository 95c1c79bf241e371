"""Any result equals itself, in every field, after each of the ways that a record takes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsocr_core.history.exporters import export_runs
from dsocr_core.history.importers.detect import import_paths
from dsocr_core.history.readings import reading_table, result_of
from dsocr_core.history.results import results as results_of_run
from dsocr_core.history.store import History
from dsocr_core.history.writer import RunWriter
from dsocr_core.records import OcrResult
from tests.support.any_results import any_result
from tests.support.made_up_runs import record

EXAMPLES = settings(max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
SEEDS = st.integers(0, 2**32)
TOGETHER = 100
"""Results of an example: 20 examples of 100 make 2,000."""


def drawn(seed: int) -> dict[tuple[str, str], OcrResult]:
    """Results of one run: pages of any kind, one of them blank, one with 5,000 boxes."""
    found = {}
    for number in range(TOGETHER):
        boxes = {0: 0, 1: 5000 if seed % 10 == 0 else 50}.get(number, seed % 4)
        result = any_result(seed + number, boxes)
        found[f"page {number}", result.backend] = result
    return found


def equal(found: OcrResult | None, given: OcrResult) -> bool:
    """In every field: two requests are equal whatever their files are, so these are held by themselves."""
    assert found is not None
    for field in fields(OcrResult):
        read, written = (getattr(each, field.name) for each in (found, given))
        if field.name == "timings":  # the history gives one a stage, in the order of the stages
            read, written = ({timing.stage: timing for timing in each} for each in (read, written))
        assert read == written, field.name
    assert given.request.file in (None, found.request.file)
    return True


@EXAMPLES
@given(SEEDS)
def test_any_result_is_read_back_from_its_row(seed: int) -> None:
    results = drawn(seed)
    parts = [reading_table(page, result, result.request.file) for (page, _), result in results.items()]
    rows = pa.concat_tables(parts).to_pylist()
    for row, result in zip(rows, results.values(), strict=True):
        assert equal(result_of(row, result.timings), result)


@EXAMPLES
@given(SEEDS)
def test_any_result_is_read_back_from_the_history_and_from_an_imported_zip(seed: int) -> None:
    results = drawn(seed)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        with RunWriter(root / "h", record()) as writer:
            for (page, _), result in results.items():
                writer.add_result(page, result)
            writer.add_failure("failed", "eager", "why")
        with History(root / "h") as history:
            here = results_of_run(history, "run-1")
            export_runs(history, ["run-1"], root / "out.zip", "zip")
        with History(root / "elsewhere") as other:
            assert import_paths(other, [root / "out.zip"]).skipped == []
            there = results_of_run(other, "run-1")
    assert here.keys() == there.keys() == results.keys()
    for key, result in results.items():
        assert equal(here[key], result) and equal(there[key], result)


def test_what_a_row_cannot_hold_is_in_exact_and_replaced_in_its_column() -> None:
    plain, half = any_result(7, 0), any_result(7, 0)
    object.__setattr__(half, "text_raw", "a\ud800b")
    object.__setattr__(plain, "text_raw", "ab")
    [row] = reading_table("p", half, None).to_pylist()
    assert row["text_raw"] == "a?b" and "\\ud800" in row["exact"]
    assert result_of(row) == half


def test_a_row_with_a_damaged_exact_falls_back_on_its_columns() -> None:
    [row] = reading_table("p", any_result(7, 0), None).to_pylist()
    found = result_of({**row, "exact": "{"})
    assert found is not None and found.text_raw == row["text_raw"]
