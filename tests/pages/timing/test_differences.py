"""Two runs that differ in anything: the table says in what, and the page shows it."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsocr_core.history.store import History
from pages.widgets.shared import resources
from pages.widgets.timing.differences import FIELDS, differences
from tests.support import timed_history
from tests.support.opened_page import opened

open_page = partial(opened, "timing")

FIELD: dict[str, Any] = {"gpu": "NVIDIA A100"}
FLAG: dict[str, Any] = {"git_dirty": True}
SETTINGS: dict[str, Any] = {"settings": {"preset": "gundam", "infer": {"max_new_tokens": 100}}}
VERSIONS: dict[str, Any] = {"versions": {"torch": "2.13.0"}}
ENVIRONMENT: dict[str, Any] = {"environment": {"fast": {"checkpoint": "mini", "gpu": "H200"}}}
LOCATION: dict[str, Any] = {"settings": {"preset": "gundam", "history": "elsewhere"}}
KINDS = {
    "gpu": FIELD, "uncommitted": FLAG, "settings": SETTINGS, "version": VERSIONS, "environment": ENVIRONMENT,
    "location": LOCATION,
}  # fmt: skip
SAME: dict[str, Any] = {"git_commit": "0" * 40}
WORDS = {
    "gpu": "GPU", "uncommitted": "uncommitted changes", "settings": "settings infer.max_new_tokens",
    "version": "version torch", "environment": "environment fast.checkpoint",
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    sets = [(), *combinations(KINDS, 1), *combinations(KINDS, 2)]
    for number, names in enumerate(sets):
        fields = SAME.copy()
        for name in names:
            merged = {**fields.get("settings", {}), **KINDS[name].get("settings", {})}
            fields |= KINDS[name] | ({"settings": merged} if merged else {})
        run = timed_history.record("-".join(["run", *names]), number, **fields)
        timed_history.write(folder, run, timed_history.paced(number, pages=timed_history.PAGES[:5]))
    return folder


@pytest.fixture(scope="module")
def history(root: Path) -> History:
    return History(root)


def found(history: History, a: str, b: str) -> pd.DataFrame:
    facts, _ = history.query("differences", run_ids=[a, b])
    return differences(history.runs(), facts, a, b)


@pytest.mark.parametrize("names", [*combinations(KINDS, 1), *combinations(KINDS, 2)], ids="-".join)
def test_whatever_a_pair_differs_in_is_named_once(history: History, names: tuple[str, ...]) -> None:
    b = "-".join(["run", *names])
    for pair in (("run", b), (b, "run")):
        table = found(history, *pair)
        assert {*(WORDS[name] for name in names if name != "location")} <= {*table["what"]}
        assert table["what"].is_unique and not table[table["A"] == table["B"]].size
        assert "settings history" not in set(table["what"])


def test_where_a_run_was_recorded_is_no_difference(history: History) -> None:
    assert found(history, "run", "run-location").empty


def test_a_value_that_one_run_lacks_is_a_difference(history: History) -> None:
    row = found(history, "run", "run-version").set_index("what").loc["version torch"]
    assert list(row) == ["not known", "2.13.0"]


@pytest.mark.parametrize("b", ["run-gpu-environment", "run-settings-version"])
def test_the_page_opens_on_a_pair_that_differs_as_a_run_and_in_a_value(
    history: History, b: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "history", lambda: history)
    test = open_page(view="A against B", a="run", b=b)
    assert any("what" in frame.value for frame in test.dataframe)


def test_every_field_has_words() -> None:
    assert all(FIELDS.values()) and len({*FIELDS.values()}) == len(FIELDS)
