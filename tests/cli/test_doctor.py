"""What `doctor` says of packages, the checkpoint and the history, and what stopped writers left there."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.console import FAILED
from dsocr_core.base.system import unbounded
from dsocr_core.cli.doctor import Finding, _history, examine
from dsocr_core.runs.history import History
from dsocr_core.settings import Settings
from tests.support.made_up_runs import record, timing, write_run


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history with a whole run, and what a writer that was killed left."""
    write_run(tmp_path / "h", "whole", [timing("p", "sam", 1.5)])
    left = tmp_path / "h" / "unfinished" / "killed.1"
    left.mkdir(parents=True)
    (left / "half.bin").write_bytes(b"x" * 1000)
    return tmp_path / "h"


def findings(history: Path, clear: bool = False) -> list[Finding]:
    return list(_history(Settings(history=str(history)), clear))


def test_the_checkpoint_and_folders_that_take_no_file_are_looked_at(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Callable[..., Any]
) -> None:
    rows = document("doctor", "--checkpoint", checkpoint, "--history", tmp_path / "h")["findings"]
    states = {row["subject"]: row["state"] for row in rows}
    assert (states["torch"], states["checkpoint"]) == ("ok", "ok")
    (tmp_path / "file").touch()  # nobody can write below it, not even root
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "file" / "cache"))
    words = ("--checkpoint", tmp_path / "none", "--history", tmp_path / "file" / "history")
    found = {row["subject"]: row for row in document("doctor", *words, code=FAILED)["findings"]}
    for subject, state, text in (
        ("checkpoint", "missing", "no config.json"),
        ("cache", "optional", "DSOCR_CACHE"),
        ("history", "missing", "DSOCR_RUNS"),
    ):
        assert found[subject]["state"] == state and text in str(found[subject])


def test_a_leftover_is_named_and_cleared_on_request(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, left = findings(history)
    assert (where.state, where.detail) == ("ok", f"{history}: runs 1")
    assert (left.subject, left.state) == ("leftover", "optional")
    assert "unfinished/killed." in left.detail and "doctor --clear" in left.advice
    with monkeypatch.context() as patch:

        def refuses(directory: Path) -> None:
            raise PermissionError(1, "Operation not permitted", str(directory / "half.bin"))

        patch.setattr("dsocr_core.runs.storage.shutil.rmtree", refuses)
        *_, left = findings(history, clear=True)
        assert left.state == "missing" and "half.bin: Operation not permitted" in left.detail
    with History(history) as opened, opened.writer(record("new")) as run:  # a writer at work is left alone
        run.add_rows("stage_timings", [timing("p", "sam", 1.0)])
        (cleared,) = findings(history, clear=True)[1:]
    assert cleared.state == "ok" and cleared.detail.startswith("cleared ")
    assert len(findings(history)) == 1 and not list((history / "unfinished").iterdir())


def test_what_is_no_history_has_no_limit_or_no_wheel_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "nvtx":
            raise PackageNotFoundError
        return "5.0"

    (bad,) = _history(Settings(history="nosuch://place"), False)
    (none,) = _history(Settings(history=""), False)
    assert (bad.state, none.state) == ("missing", "optional") and "nosuch" in bad.detail
    settings = Settings(history="")
    assert not [finding for finding in examine(settings) if finding.subject == "limits"]
    monkeypatch.setattr("dsocr_core.base.system.memory_of", lambda: None)
    monkeypatch.setattr("dsocr_core.cli.doctor.version", version)
    found = [finding for finding in examine(settings) if finding.subject in ("limits", "nvtx")]
    assert {finding.state for finding in found} == {"optional"}
    assert [finding.subject for finding in found].count("limits") == len(unbounded())
