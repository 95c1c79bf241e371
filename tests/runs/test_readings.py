"""Any result equals itself, in every field, after each of the ways that a record takes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.results import result_of, result_table
from tests.support.any_results import any_result
from tests.support.result_stores import STORES

TOGETHER = 100
"""Results of an example."""


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
        assert read == written, field.name
    assert given.request.file in (None, found.request.file)
    assert given.request.more_files in ((), found.request.more_files)
    assert [box.page for box in given.boxes] == [box.page for box in found.boxes]
    return True


@pytest.mark.parametrize("store", [store for store in STORES if store != "history"])  # it lies below the zip
def test_any_result_equals_itself_after(store: str) -> None:
    holds_for_any(store, TOGETHER)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_two_thousand_results_equal_themselves_after(store: str) -> None:
    holds_for_any(store, 2000)


def holds_for_any(store: str, results: int) -> None:
    @settings(
        max_examples=results // TOGETHER, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate],
    )  # fmt: skip
    @given(st.integers(0, 2**32))
    def holds(seed: int) -> None:
        written = drawn(seed)
        with TemporaryDirectory() as folder:
            read = STORES[store](Path(folder), written)
        assert read.keys() == written.keys()
        for key, result in written.items():
            assert equal(read[key], result)

    holds()


def test_what_a_row_cannot_hold_is_in_exact_and_replaced_in_its_column() -> None:
    plain, half = any_result(7, 0), any_result(7, 0)
    object.__setattr__(half, "text_raw", "a\ud800b")
    object.__setattr__(plain, "text_raw", "ab")
    [row] = result_table("p", half, files=[None]).to_pylist()
    assert row["text_raw"] == "a?b" and "\\ud800" in row["exact"]
    assert result_of(row) == half


@pytest.mark.parametrize("exact", ["{", "{}", "[1]", '{"request": 3}'])
def test_a_row_with_a_damaged_exact_falls_back_on_its_columns(exact: str) -> None:
    [row] = result_table("p", any_result(7, 0), files=[None]).to_pylist()
    found = result_of({**row, "exact": exact})
    assert found is not None and found.text_raw == row["text_raw"]
