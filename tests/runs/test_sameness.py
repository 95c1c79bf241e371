"""Which recorded values count as a difference of runs."""

from __future__ import annotations

import pandas as pd
import pytest

from dsocr_core.runs.sameness import FIELDS, differ, record_facts, side_by_side


@pytest.mark.parametrize(
    ("section", "name", "values", "different"),
    [
        ("settings", "history", ("data/runs/history", "/elsewhere"), False),
        ("settings", "checkpoint", ("data/mini", "/home/x/clone/data/mini"), False),
        ("settings", "checkpoint", ("data/mini", "/home/x/clone/data/mini", None), True),
        ("settings", "checkpoint", ("data/mini", "/home/x/clone/data/maxi"), True),
        ("settings", "checkpoint", ("", "/home/x"), True),
        ("settings", "preset", ("small", "small"), False),
        ("settings", "preset", ("small", "tiny"), True),
        ("settings", "preset", ("small", None), True),
        ("environment", "checkpoint", ("mini", "/x/mini"), True),
    ],
)
def test_a_value_differs_unless_it_says_where_the_run_was_kept(
    section: str, name: str, values: tuple[str | None, ...], different: bool
) -> None:
    assert differ(section, name, values) is different


def test_sides_are_compared_by_value_and_presence() -> None:
    facts = pd.DataFrame(
        [("a", "s", "same", "1"), ("b", "s", "same", "1"), ("a", "s", "one", "1"), ("b", "s", "none", None),
         ("a", "t", "same", "1"), ("b", "t", "same", "2")],
        columns=["run_id", "section", "name", "value"],
    )  # fmt: skip
    table = side_by_side(facts, ["b", "a"], differing=True)
    assert table.to_numpy().tolist() == [["s", "one", None, "1"], ["t", "same", "2", "1"]]
    assert len(side_by_side(facts, ["b", "a"], differing=False)) == 4


def test_a_records_own_fields_are_facts_with_their_words() -> None:
    known = dict.fromkeys(FIELDS, "x") | {"run_id": "a", "git_dirty": True, "backends": ["fast", "vendor"]}
    runs = pd.DataFrame([known, dict.fromkeys(FIELDS) | {"run_id": "b", "git_dirty": False}])
    table = side_by_side(record_facts(runs, ["a", "b"]), ["a", "b"], differing=True).set_index("name")
    assert {*table.index} == {*FIELDS.values()} and len({*FIELDS.values()}) == len(FIELDS)
    assert table.loc["uncommitted changes", ["a", "b"]].tolist() == ["yes", "no"]
    assert table.loc["backends", ["a", "b"]].tolist() == ["fast, vendor", None]
