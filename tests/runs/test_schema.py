"""The tables' columns, what rows they refuse, and runs of versions that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import RecordError, RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import SchemaError, rows_to_table
from tests.support.made_up_runs import HOSTILE, record, timing


@pytest.mark.parametrize(
    "table, row, words",
    [
        ("timings", timing("p", "sam", 1.0, speed=3), "no column speed"),
        ("timings", timing("p", "sam", float("nan")), "not finite"),
        ("timings", timing("p", "sam", float("inf")), "not finite"),
        ("timings", timing("p", "sam", -1.0), "below 0"),
        ("timings", timing("p", "sam", "12"), "milliseconds"),  # type: ignore[arg-type]
        ("timings", timing("p", "sam", True), "milliseconds"),
        ("timings", timing("p", "sam", 1.0, inside_prefill=1), "inside_prefill"),
        ("timings", timing("p", "sam", 1.0, aggregate="median"), "aggregate"),
        ("timings", timing("p", "sam", 1.0, calls=1.5), "calls"),
        ("timings", {"page": "p", "stage": "sam"}, "may not be empty"),
        ("readings", {"page": "p", "token_ids": [2**40]}, "token_ids"),
        ("readings", {"page": "p", "width": 2**70}, "width"),
        ("readings", {"width": 1}, "page may not be empty"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(table: str, row: dict[str, object], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        rows_to_table(table, "r", [row])


def test_text_of_any_kind_is_kept_as_it_is() -> None:
    table = rows_to_table("readings", "r", [{"page": text, "text_raw": text} for text in HOSTILE])
    assert tuple(table["page"].to_pylist()) == HOSTILE
    half = rows_to_table("readings", "r", [{"page": "a\ud800b"}])
    assert half["page"].to_pylist() == ["a?b"]


# --- records ------------------------------------------------------------------------------------


def test_a_record_survives_json() -> None:
    run = record(
        "a.b-1", command="python -m dsocr_core run 'x y.png'", settings={"infer": {"max_new_tokens": "inf"}},
        notes=HOSTILE[7], git_dirty=True, versions={"torch": "2"},
    )  # fmt: skip
    assert RunRecord.from_json(json.loads(json.dumps(run.to_json()))) == run


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a" * 101, "a b", "a\n"])
def test_a_run_id_never_leads_elsewhere(name: str) -> None:
    with pytest.raises(RecordError):
        record(name)


@pytest.mark.parametrize(
    "change",
    [
        {"created": "yesterday"}, {"source": "guess"}, {"profiled": 1}, {"backends": "eager"},
        {"settings": []},
        {"notes": 3}, {"id": None},
    ],
)  # fmt: skip
def test_foreign_records_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        RunRecord.from_json(record().to_json() | change)


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_run_of_an_earlier_version_is_named_and_skipped(tmp_path: Path, version: int) -> None:
    reason = f"run.json: recorded by another version (schema {version}): record it anew"
    assert reason_of(tmp_path, version) == reason
    with History(tmp_path / "into") as history:
        [skipped] = import_paths(history, [tmp_path / "h" / "runs" / "run-1"]).skipped
        assert reason.endswith(skipped.reason) and history.run_ids() == []


@pytest.mark.parametrize("version", [5, 99, 0, -1, None, "4", True, 1.0])
def test_a_version_nobody_here_knows_is_left_out_with_the_reason(tmp_path: Path, version: object) -> None:
    reason = reason_of(tmp_path, version)
    assert ("a later one" if version in (5, 99) else "not a run of this project") in reason


def reason_of(tmp_path: Path, version: object) -> str:
    """Why a history leaves out a run whose document has that version; another run of it is read."""
    for name in ("run-1", "run-2"):
        with RunDirectory.create(tmp_path / "h", record(name)) as run:
            run.add_rows("readings", [{"page": "p", "backend": "eager", "text_raw": "text"}])
    directory = tmp_path / "h" / "runs" / "run-1"
    document = directory / "run.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | {"schema_version": version}))
    write_checksums(directory)
    with History(tmp_path / "h") as history:
        assert history.run_ids() == ["run-2"]
        return history.problems["runs/run-1"]
