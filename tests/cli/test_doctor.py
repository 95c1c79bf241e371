"""What `doctor` says of packages, the checkpoint and the history, and what stopped writers left there."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.console import FAILED
from dsocr_core.runs.history import History
from tests.support.made_up_runs import record, timing, write_run

Rows = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def rows(document: Callable[..., Any]) -> Rows:
    """The findings by their subject, whatever is missing here."""

    def found(*words: object, code: int = 0) -> dict[str, dict[str, str]]:
        return {row["subject"]: row for row in document("doctor", *words, code=code)["findings"]}

    return found


def test_the_checkpoint_and_folders_that_take_no_file_are_looked_at(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    there = rows("--checkpoint", checkpoint, "--history", tmp_path / "h")
    assert (there["torch"]["state"], there["checkpoint"]["state"]) == ("ok", "ok") and "limits" not in there
    (tmp_path / "file").touch()  # nobody can write below it, not even root
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "file" / "cache"))
    words = ("--checkpoint", tmp_path / "none", "--history", tmp_path / "file" / "history")
    found = rows(*words, code=FAILED)
    for subject, state, text in (
        ("checkpoint", "missing", "no config.json"),
        ("cache", "optional", "DSOCR_CACHE"),
        ("history", "missing", "DSOCR_RUNS"),
    ):
        assert found[subject]["state"] == state and text in str(found[subject])


def test_a_leftover_is_named_but_not_that_of_a_writer_at_work(tmp_path: Path, rows: Rows) -> None:
    history = tmp_path / "h"
    write_run(history, "whole", [timing("p", "sam", 1.5)])
    with History(history) as opened, opened.writer(record("new")) as run:
        run.add_rows("timings", [timing("p", "sam", 1.0)])
        found = rows("--history", history)
        assert found["history"]["detail"] == f"{history}: runs 1" and "leftover" not in found
    (history / "unfinished" / "killed.1").mkdir()
    (history / "unfinished" / "killed.1" / "half.bin").write_bytes(b"x" * 1000)
    left = rows("--history", history)["leftover"]
    assert "unfinished/killed.1: 1,000 bytes" in left["detail"] and left["advice"] == "delete that folder"


def test_what_is_no_history_has_no_limit_or_no_wheel_is_said(
    monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    def version(name: str) -> str:
        if name == "nvtx":
            raise PackageNotFoundError
        return "5.0"

    bad = rows("--history", "nosuch://place", code=FAILED)["history"]
    assert bad["state"] == "missing" and "nosuch" in bad["detail"]
    monkeypatch.setattr("dsocr_core.base.system.memory_of", lambda: None)
    monkeypatch.setattr("dsocr_core.cli.doctor.version", version)
    found = rows("--history", "")
    assert [found[name]["state"] for name in ("history", "limits", "nvtx")] == ["optional"] * 3
