"""A page's address: what it says becomes typed values, and only what differs from the defaults goes back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from pages.widgets.shared.url_state import Parameter, index_of, written

PARAMETERS = {
    "view": Parameter("All", ("All", "One")),
    "text": Parameter(""),
    "many": Parameter([]),
    "flag": Parameter(True),
    "day": Parameter(None),
    "whole": Parameter(5, (), 1, 9),
    "number": Parameter(2.0, (), 0, 50),
    "of_one": Parameter("", view="One"),
}


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("view", ["All", "One"], "One"),  # of several, the last
        ("text", ["<b>"], "<b>"),
        ("many", ["b", "", "a", "b"], ["b", "a"]),
        ("flag", ["off"], False),
        ("day", ["2026-11-12"], date(2026, 11, 12)),
        ("whole", ["9"], 9),
        ("number", ["0.5"], 0.5),
        ("number", ["49.1234567"], 49.1234567),  # every digit that was typed
    ],
)
def test_a_value_is_read_and_written_as_it_was(name: str, texts: Sequence[str], value: Any) -> None:
    parameter = PARAMETERS[name]
    assert parameter.read(texts) == value
    assert parameter.read(parameter.write(value)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("view", "Two"), ("flag", "true"), ("flag", ""), ("day", "yesterday"), ("whole", "0"),
        ("whole", "10"), ("whole", "1.0"), ("whole", "9" * 5000), ("number", "nan"),
        ("number", "inf"), ("number", "-1"),
    ],
)  # fmt: skip
def test_a_foreign_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        PARAMETERS[name].read([text])


def test_only_what_differs_and_counts_in_the_view_is_written() -> None:
    standard = {name: parameter.default for name, parameter in PARAMETERS.items()}
    assert written(PARAMETERS, standard) == {}
    other = standard | {"many": ["a", "b"], "flag": False, "number": 0.5, "of_one": "x"}
    assert written(PARAMETERS, other) == {"many": ["a", "b"], "flag": ["off"], "number": ["0.5"]}
    one = written(PARAMETERS, standard | {"view": "One", "of_one": "x"})
    assert one == {"view": ["One"], "of_one": ["x"]}


@pytest.mark.parametrize(
    ("text", "index"),
    [("1", 0), ("12", 11), *((text, None) for text in ("0", "13", "", "-1", "²", "9" * 5000))],
)
def test_the_address_counts_from_one(text: str, index: int | None) -> None:
    assert index_of(text, 12) == index


def test_a_flag_or_a_choice_that_is_none_has_its_default() -> None:
    assert Parameter(False).held(None) is False and Parameter(True).held(None) is True
    assert Parameter("a", ("a", "b")).held(None) == "a" and Parameter("a", ("a", "b")).held("b") == "b"
    assert Parameter(7).held(None) is None  # an empty number field
    assert Parameter(False).held(True) is True


def test_a_value_of_an_older_link_is_read_as_what_it_is_now() -> None:
    view = Parameter("New", ("New", "Other"), former=(("Old", "New"),))
    assert view.read(["Old"]) == "New" and view.read(["Other"]) == "Other"
    with pytest.raises(ValueError, match="Older"):
        view.read(["Older"])
