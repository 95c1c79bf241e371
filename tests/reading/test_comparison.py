"""What became of one page: its sides, and the verdict over them."""

from dataclasses import replace

import pytest

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.parity_row import parity_document
from tests.support.results import make_result

A, B = make_result("a" * 97 + "xxx"), make_result("a" * 100, "vendor")
BOTH = Comparison(A.request, A, B)


def test_the_verdict_follows_the_tolerance() -> None:
    assert BOTH.verdict == "differs"
    assert replace(BOTH, tolerance=Tolerance(character_error_rate=0.03)).verdict == "within_tolerance"
    assert replace(BOTH, a=B).verdict == "identical"


@pytest.mark.parametrize(
    ("comparison", "compared"),
    [
        (BOTH, True),
        (replace(BOTH, b=None, errors={"b": "out of memory"}), True),
        (replace(BOTH, a=None, b=None, errors={"a": "no such file", "b": "no such file"}), True),
        (replace(BOTH, b=None), False),
        (replace(BOTH, a=None, b=None, errors={"a": "no such file"}), False),
    ],
)
def test_a_page_is_compared_where_each_side_has_a_result_or_an_error(
    comparison: Comparison, compared: bool
) -> None:
    assert comparison.compared == compared
    assert (comparison.verdict == "not_comparable") == (comparison is not BOTH)


def test_the_figures_of_a_page_as_json_values() -> None:
    row = parity_document(BOTH.report)
    assert row == {
        "verdict": "differs",
        "reasons": row["reasons"],
        "tokens_equal": False, "first_divergence": 97, "input_parity": True,
        "max_coordinate_difference_percent": None, "character_error_rate": 0.03, "margins": None,
        "boxes": {"a": 0, "b": 0, "matched": 0},
    }  # fmt: skip
    assert row["reasons"][0].startswith("text differs by 3 %: ")
    failed = parity_document(None, ["out of memory"])
    assert failed.keys() == row.keys()
    assert (failed["verdict"], failed["reasons"]) == ("not_comparable", ["out of memory"])
    assert failed["boxes"] == {"a": None, "b": None, "matched": None}
    assert {failed[name] for name in row if name not in ("verdict", "reasons", "boxes")} == {None}
