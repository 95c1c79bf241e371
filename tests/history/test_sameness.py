"""Which recorded values count as a difference of runs."""

from __future__ import annotations

import pytest

from dsocr_core.history.sameness import differ


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
