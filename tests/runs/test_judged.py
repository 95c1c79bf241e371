"""Recorded verdicts are those of today's rule wherever they are counted, whatever rule recorded them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.reading.parity_records import RULE
from dsocr_core.runs import rejudging
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import History
from tests.support.results import make_result
from tests.support.review_sides import write

PROSE = "This sentence says a little more about the contract and about its parties. " * 20


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
def test_pages_are_counted_by_the_rule_of_today(tmp_path: Path, rule: int | None) -> None:
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
        assert dict(history.runs().iloc[0][["identical", "within_tolerance", "differs"]]) == {
            "identical": 1, "within_tolerance": 1, "differs": 1,
        }  # fmt: skip
    recorded_by_another_rule(
        location, {"value": "within_tolerance", "spelling": "within_tolerance", "same": "identical"}, rule
    )
    expected = (1, 2, 0) if rule == RULE else (1, 1, 1)
    with History(location) as history:
        run = history.runs().iloc[0]
        assert tuple(run[["identical", "within_tolerance", "differs"]]) == expected
        assert run["passed"] == expected[0] + expected[1]


def test_what_today_s_rule_recorded_is_not_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejudging, "compare_results", lambda *_: pytest.fail("judged again"))
    with History(tmp_path / "h") as history:
        write(history, "run-1", {"p": {"eager": make_result("a 5"), "vendor": make_result("a 6", "vendor")}})
        assert history.runs().iloc[0]["differs"] == 1
