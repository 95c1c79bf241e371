"""What earlier versions wrote still opens, and is judged by the rule of today."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dsocr_core.reading.parity import parity
from dsocr_core.reading.parity_records import Verdict
from dsocr_core.review.review import open_review
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.store import History
from dsocr_core.runs.upgrade.migrations import migrate
from tests.support.planted import sample_results

PACK = Path(__file__).parent / "data" / "pack-of-version-1.zip"
"""Exported by version 1: a run of seven pages, each named by what A was made to read otherwise."""

RUN = "made-by-d2272d1"
EXPECTED: dict[str, Verdict] = {
    "equal.png": "identical",
    "jitter.png": "within_tolerance",
    "inputs.png": "within_tolerance",
    "text.png": "differs",
    "truncated.png": "differs",
    "moved.png": "differs",
}
"""Version 1 passed all of them but the last."""


def test_an_exported_pack_is_imported_judged_anew_and_reviewed(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        report = import_paths(history, [PACK])
        assert ([run.run_id for run in report.imported], report.skipped) == ([RUN], [])
        assert history.record(RUN).backends == ("fast", "vendor")
        rows = {row["page"]: row for row in history.tables(RUN)["parity"].to_pylist()}
        assert {page: row["verdict"] for page, row in rows.items()} == EXPECTED
        assert rows["equal.png"]["reasons"] == []
        assert rows["inputs.png"]["reasons"] == ["inputs differ"]
        assert rows["truncated.png"]["reasons"][0] == "A ended at the token limit, B with EOS"
        assert rows["moved.png"]["reasons"][0] == "a box is off by 3.4 % of the page's side (limit 2 %)"
        (run,) = history.runs().to_dict("records")
        counts = ("compared", "passed", "identical", "within_tolerance", "differs", "not_comparable")
        assert [run[name] for name in counts] == [6, 3, 1, 2, 3, 0]
        # The review reads the texts: it says the same, and has the page that failed.
        review = open_review(history, RUN)
        assert (review.a.backend, review.b.backend) == ("fast", "vendor")
        verdicts = {page.name: page.verdict for page in review.pages}
        assert verdicts == EXPECTED | {"failed.png": "not_comparable"}
        assert review.page("inputs.png").reasons == ("inputs differ: n-gram size (35 and 20)",)
        assert review.detail("jitter.png").report.first_divergence is not None


def test_the_results_that_come_with_the_samples_are_identical() -> None:
    reports = [parity(a, b) for a, b in sample_results()]
    assert len(reports) == 14
    assert {report.verdict for report in reports} == {"identical"}
    assert all(report.tokens_equal and report.input_parity for report in reports)


ROW = {
    "run_id": "r", "page": "p", "verdict": "pass", "reasons": [], "boxes_ours": 4, "boxes_vendor": 4,
    "boxes_matched": 4, "max_coordinate_difference_percent": 0.0, "tokens_equal": False,
    "character_error_rate": 0.0, "input_parity": True,
}  # fmt: skip
LABELS = "0 boxes have no partner and 2 another label (limit 1 may differ)"
CASES: list[tuple[str, dict[str, object], tuple[str | None, str | None], Verdict, list[str]]] = [
    ("equal tokens", {"tokens_equal": True}, ("eos", "eos"), "identical", []),
    ("equal tokens, ends not known", {"tokens_equal": True}, (None, None), "identical", []),
    (
        "equal tokens of other inputs", {"tokens_equal": True, "input_parity": False}, ("eos", "eos"),
        "within_tolerance", ["inputs differ"],
    ),
    (
        "other tokens, the same text", {}, ("length", "length"),
        "within_tolerance", ["text and boxes are equal, written with other tokens"],
    ),
    (
        "a little of everything",
        {"character_error_rate": 0.0105, "boxes_vendor": 5, "max_coordinate_difference_percent": 1.5},
        ("eos", "eos"), "within_tolerance",
        ["4 boxes and 5", "boxes agree within 1.5 %",
         "text differs by 1.05 %"],
    ),
    (
        "a green page with 7.8 % of its characters changed", {"character_error_rate": 0.078}, ("eos", "eos"),
        "differs", ["text differs by 7.8 % (limit 2 %)"],
    ),
    (
        "a green page that was cut off", {"character_error_rate": 0.01}, ("length", "eos"),
        "differs", ["A ended at the token limit, B with EOS", "text differs by 1 %"],
    ),
    (
        "ends that were not recorded", {"character_error_rate": 0.01}, (None, "eos"),
        "differs", ["how A ended is not known", "text differs by 1 %"],
    ),
    ("labels, which the row does not count", {"verdict": "fail", "reasons": [LABELS]}, ("eos", "eos"),
     "differs", [LABELS]),
    (
        "page sizes", {"verdict": "fail", "reasons": ["page sizes differ: (1, 2), (2, 1)"]}, ("eos", "eos"),
        "not_comparable", ["page sizes differ: (1, 2), (2, 1)"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "ends", "verdict", "reasons"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_a_row_of_version_1_gets_the_verdict_of_its_figures(
    change: dict[str, object], ends: tuple[str | None, str | None], verdict: Verdict, reasons: list[str]
) -> None:
    images = [
        {"run_id": "r", "page": "p", "road": road, "finish_reason": end}
        for road, end in zip(("ours", "vendor"), ends, strict=True)
    ]
    tables = {"parity": pa.Table.from_pylist([ROW | change]), "images": pa.Table.from_pylist(images)}
    document = {"schema_version": 1, "id": "r", "engine": "fast"}
    (row,) = migrate(document, tables)[1]["parity"].to_pylist()
    assert (row["verdict"], row["reasons"]) == (verdict, reasons)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("python -m dsocr_core bench --json --tokens 1000 --engine fast", 1000),
        ("dsocr bench --tokens=200", 200),
        ("dsocr bench --engine fast", 100),
        ("dsocr compare bench.png --tokens 5", 8192),
        (None, 8192),
    ],
)
def test_a_bench_of_an_earlier_version_has_the_limit_of_its_command(command: str | None, limit: int) -> None:
    document = {"schema_version": 3, "command": command, "settings": {"infer": {"max_new_tokens": 8192}}}
    assert migrate(document, {})[0]["settings"] == {"infer": {"max_new_tokens": limit}}
    assert migrate({"schema_version": 3, "command": command, "settings": 7}, {})[0]["settings"] == 7
