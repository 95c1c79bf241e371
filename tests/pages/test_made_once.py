"""What is made of all runs is made once for all tabs, until a run comes or something is noted."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.runs.store import SEED_LOCATION, History
from pages.widgets.shared import resources
from tests.support.made_up_runs import timing, write_run
from tests.support.opened_page import opened


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path / "mine", also=[SEED_LOCATION]) as history:
        monkeypatch.setattr(resources, "history", lambda: history)
        yield history


def counted(module: str, name: str, calls: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the calls of a function where a page asks it."""
    of = importlib.import_module(f"pages.widgets.{module}")
    inner = getattr(of, name)

    def count(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return inner(*given, **named)

    monkeypatch.setattr(of, name, count)


@pytest.mark.parametrize(
    ("page", "module", "name"),
    [
        ("timing", "timing.regressions", "regressions"),
        ("timing", "timing.sidebar", "_found"),
        ("runs", "runs.run_list", "run_table"),
        ("flops", "flops.gaps", "_asked"),
    ],
)
def test_another_tab_has_what_the_first_one_made(
    examples: History, tmp_path: Path, page: str, module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    counted(module, name, calls, monkeypatch)
    first = opened(page)
    assert calls[name] == 1
    first.run()
    opened(page)
    assert calls[name] == 1
    write_run(tmp_path / "mine", "new", [timing("page.png", "decode", 1.0)])
    examples.refresh()
    opened(page)
    assert calls[name] == 2


def test_a_run_in_the_trash_no_longer_counts_beside_the_chosen_ones(
    examples: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    counted("timing.comparison", "_asked", calls, monkeypatch)
    opened("timing", view="B against A")
    opened("timing", view="B against A")
    assert calls["_asked"] == 1
    examples.trash([examples.run_ids()[0]])
    opened("timing", view="B against A")
    assert calls["_asked"] == 2


def test_review_names_its_runs_once_a_tab(examples: History, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    counted("review.sidebar", "run_labels", calls, monkeypatch)
    opened("review").run()
    assert calls["run_labels"] == 1


def test_a_note_changes_the_list_and_no_times(examples: History, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    counted("timing.regressions", "regressions", calls, monkeypatch)
    counted("runs.run_list", "run_table", calls, monkeypatch)
    opened("timing")
    opened("runs")
    examples.note(examples.run_ids()[0], "looked at")
    opened("timing")
    assert "looked at" in opened("runs").dataframe[0].value["note"].tolist()
    assert calls == {"regressions": 1, "run_table": 2}
