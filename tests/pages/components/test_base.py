"""How components are told which of two data is the newer."""

from collections.abc import Iterator

import pytest
import streamlit as st

from pages.widgets.components import base


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The time in ns, which a test sets; a session of its own."""
    now = [1_000_000_000]
    monkeypatch.setattr(base.time, "time_ns", lambda: now[0])
    monkeypatch.setattr(st, "session_state", {})
    yield now


def test_newer_data_are_later_within_a_millisecond_and_beside_a_clock_set_back(clock: list[int]) -> None:
    times = [base._since("key", {"page": 1}), base._since("key", {"page": 2})]
    clock[0] -= 500_000_000
    times.append(base._since("key", {"page": 3}))
    assert times == [1000, 1001, 1002]


def test_equal_data_keep_their_time_and_the_message_its_bytes(clock: list[int]) -> None:
    first = base._since("key", {"page": 1})
    clock[0] += 5_000_000
    assert base._since("key", {"page": 1}) == first
    assert base._since("other", {"page": 1}) == 1005


def test_data_shown_before_are_newer_when_they_come_back(clock: list[int]) -> None:
    pages = [1, 2, 1]
    assert [base._since("key", {"page": page}) for page in pages] == [1000, 1001, 1002]


def test_the_data_of_a_new_session_are_newer(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for page in range(5):
        last = base._since("key", {"page": page})
    monkeypatch.setattr(st, "session_state", {})
    clock[0] += 1_000_000_000
    assert base._since("key", {"page": 0}) > last
