"""Any result equals itself after each way that a record takes; runs of an earlier rule read on."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsocr_core.reading.parity_records import RULE, Tolerance
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import tolerance_of
from dsocr_core.runs.results import PageResults, readings, result_of, result_table
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.any_results import any_result
from tests.support.made_up_runs import record
from tests.support.result_stores import STORES
from tests.support.results import make_result

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


def assert_equal(found: OcrResult | None, given: OcrResult) -> None:
    """In every field: two requests are equal whatever their files are, so these are held by themselves."""
    assert found is not None
    for field in fields(OcrResult):
        assert getattr(found, field.name) == getattr(given, field.name), field.name
    assert given.request.file in (None, found.request.file)
    assert given.request.more_files in ((), found.request.more_files)
    assert [box.page for box in given.boxes] == [box.page for box in found.boxes]


@pytest.mark.parametrize(
    ("store", "results"),
    [*((store, TOGETHER) for store in STORES if store != "history"),  # it lies below the zip
     *(pytest.param(store, 2000, marks=pytest.mark.slow) for store in STORES)],
)  # fmt: skip
def test_any_result_equals_itself_after(store: str, results: int) -> None:
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
            assert_equal(read[key], result)

    holds()


@pytest.mark.parametrize("exact", [None, "{", "{}", "[1]", '{"request": 3}'])
def test_what_a_row_cannot_hold_is_in_exact_and_replaced_in_its_column(exact: str | None) -> None:
    """Where `exact` is damaged the columns count."""
    half = any_result(7, 0)
    object.__setattr__(half, "text_raw", "a\ud800b")
    [row] = result_table("p", half, {}, [None]).to_pylist()
    assert row["text_raw"] == "a?b" and "\\ud800" in row["exact"]
    found = result_of(row | ({"exact": exact} if exact else {}))
    assert found is not None and (found.text_raw == "a?b" if exact else found == half)


# --- of earlier rules -----------------------------------------------------------------------------

EARLIER = Path(__file__).parent / "earlier_runs"
"""A run that commit 4c5a739e recorded, under rule 2 and a tolerance of 2 % of the characters."""


def test_a_run_of_an_earlier_commit_reads_on(tmp_path: Path) -> None:
    shutil.copytree(EARLIER, tmp_path / "runs")
    (name,) = (each.name for each in EARLIER.iterdir())
    with History(tmp_path) as history:
        assert history.problems == {} and history.run_ids() == [name]
        run = history.runs().iloc[0]
        assert (run["pages"], run["identical"], run["within_tolerance"], run["differs"]) == (14, 11, 3, 0)
        assert tolerance_of(history.record(name)) == Tolerance()
        found = readings(history, name)
        assert len(found.results) == 28 and not found.failures
        assert all(each.text_raw and each.token_ids and each.timings for each in found.results.values())


def test_the_runs_that_come_with_the_project_are_of_today_s_rule() -> None:
    for file in SEED_LOCATION.glob("runs/*/run.json"):
        document = json.loads(file.read_bytes())
        assert document["parity_rule"] == RULE
        assert document["settings"].get("tolerance", vars(Tolerance())) == vars(Tolerance())


@pytest.mark.parametrize("rule", [None, RULE - 1, RULE])
def test_pages_are_counted_by_the_rule_of_today(tmp_path: Path, rule: int | None) -> None:
    texts = {"value": ("5 **1,234**", "5 **7,234**"), "spelling": ("**5**", "<b>5</b>"), "same": ("5", "5")}
    with RunDirectory.create(tmp_path, record()) as run:
        for page, (a, b) in texts.items():
            run.add(PageResults(page, results=[make_result(a), make_result(b, "vendor")]))
            # As an earlier product left it: other verdicts, and another rule's number or none.
            verdict = "identical" if page == "same" else "within_tolerance"
            run.add_rows("parity", [{"page": page, "verdict": verdict}])
    directory = tmp_path / "runs" / "run-1"
    document = json.loads((directory / "run.json").read_text())
    assert document.pop("parity_rule") == RULE
    (directory / "run.json").write_text(json.dumps(document | ({"parity_rule": rule} if rule else {})))
    write_checksums(directory)
    # What today's rule recorded is not judged again.
    expected = [1, 2, 0, 3] if rule == RULE else [1, 1, 1, 2]
    again = shutil.copytree(directory, tmp_path / "again")
    with closing(RunDirectory.open(again)) as run:
        run.add(PageResults("more", results=[make_result("5")]))
        run.finish(record("run-2"))
    with History(tmp_path) as history, History(tmp_path / "other") as other:
        import_paths(other, [directory, again])
        for _, run in pd.concat([history.runs(), other.runs()]).iterrows():
            assert run[["identical", "within_tolerance", "differs", "passed"]].tolist() == expected
