"""Answers that are held until the history changes: asked once, given to each as its own."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.history.answers import Answers


class Asked:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> pd.DataFrame:
        self.count += 1
        return pd.DataFrame({"n": [1, 2, 3], "of": [self.count] * 3})


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_the_same_is_asked_once_until_the_history_changes(asked: Asked) -> None:
    answers = Answers()
    for state, value, count in ((1, "a", 1), (1, "a", 1), (1, "b", 2), (1, "a", 2), (2, "a", 3), (2, "b", 4)):
        answers.get(state, "SELECT", {"run": value}, asked)
        assert asked.count == count
    answers.get(2, "SELECT 2", {"run": "a"}, asked)
    assert asked.count == 5


def test_what_one_caller_writes_no_other_reads(asked: Asked) -> None:
    answers = Answers()
    for _ in range(3):
        frame = answers.get(1, "SELECT", {}, asked)
        assert frame["n"].tolist() == [1, 2, 3]
        frame["n"] = 0
        frame.loc[0, "of"] = 9
        frame["more"] = 1
    assert asked.count == 1


def test_a_file_written_anew_is_read_again_and_one_that_is_gone_is_an_error(
    tmp_path: Path, asked: Asked
) -> None:
    answers, file = Answers(), tmp_path / "kernels.parquet"
    file.write_bytes(b"one")
    values = {"files": [str(file)]}
    for _ in range(2):
        answers.get(1, "SELECT", values, asked)
    assert asked.count == 1
    os.utime(file, ns=(1, 1))
    answers.get(1, "SELECT", values, asked)
    assert asked.count == 2
    file.unlink()
    with pytest.raises(FileNotFoundError):
        answers.get(1, "SELECT", values, asked)


def test_the_oldest_answers_go_when_there_is_no_room(asked: Asked) -> None:
    one = int(asked().memory_usage().sum())
    answers = Answers(most_bytes=2 * one)
    asked.count = 0
    for value in "abac":  # b goes: a was asked again
        answers.get(1, "SELECT", {"run": value}, asked)
    assert asked.count == 3
    answers.get(1, "SELECT", {"run": "a"}, asked)
    assert asked.count == 3
    answers.get(1, "SELECT", {"run": "b"}, asked)
    assert asked.count == 4
    small = Answers(most_bytes=one - 1)
    for _ in range(2):
        small.get(1, "SELECT", {}, asked)
    assert asked.count == 6
