"""Runs that an earlier rule judged read on, and are counted by the rule of today; seeds are of today's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.reading.parity_records import RULE, Tolerance
from dsocr_core.runs import history_file
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.record import tolerance_of
from dsocr_core.runs.results import readings
from tests.support.results import make_result
from tests.support.review_sides import write

PROSE = "This sentence says a little more about the contract and about its parties. " * 20
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


def recorded_by_another_rule(location: Path, verdicts: dict[str, str], rule: int | None) -> None:
    """The run as an earlier product left it: other verdicts, and another rule's number or none."""
    directory = location / "runs" / "run-1"
    file = directory / "parity.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("verdict")
    told = pa.array([verdicts[page] for page in table["page"].to_pylist()], pa.string())
    pq.write_table(table.set_column(at, table.schema.field(at), told), file)
    document = json.loads((directory / "run.json").read_text())
    assert document.pop("parity_rule") == RULE
    (directory / "run.json").write_text(json.dumps(document | ({"parity_rule": rule} if rule else {})))
    write_checksums(directory)


@pytest.mark.parametrize("rule", [None, RULE - 1, RULE])
def test_pages_are_counted_by_the_rule_of_today(
    tmp_path: Path, rule: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "value": (f"{PROSE}Total 1,234.00", f"{PROSE}Total 7,234.00"),
        "spelling": (f"{PROSE}**Total** 5", f"{PROSE}<b>Total</b> 5"),
        "same": (PROSE, PROSE),
    }
    location = tmp_path / "h"
    with History(location) as history:
        pages = {
            page: {"eager": make_result(a), "vendor": make_result(b, "vendor")}
            for page, (a, b) in texts.items()
        }
        write(history, "run-1", pages)
    recorded_by_another_rule(
        location, {"value": "within_tolerance", "spelling": "within_tolerance", "same": "identical"}, rule
    )
    if rule == RULE:  # what today's rule recorded is not judged again
        monkeypatch.setattr(history_file, "compare_results", lambda *_: pytest.fail("judged again"))
    expected = (1, 2, 0) if rule == RULE else (1, 1, 1)
    with History(location) as history:
        run = history.runs().iloc[0]
        assert tuple(run[["identical", "within_tolerance", "differs"]]) == expected
        assert run["passed"] == expected[0] + expected[1]
