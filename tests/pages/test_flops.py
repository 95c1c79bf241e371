"""The FLOPs page driven without a browser."""

from __future__ import annotations

import json
import shlex

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import main
from dsocr_core.runs.history import SEED_LOCATION, History
from pages.widgets.flops.address import PARAMETERS
from tests.support.opened_page import checked, errors, opened, words

NEWEST, EAGER = "20261128-190606-4c84d7d5", "20261122-224542-8bc00014"


def command(test: AppTest, word: str) -> str:
    return next(code.value for code in test.code if word in code.value)


# --- all runs -----------------------------------------------------------------------------------------


def test_the_first_visit_has_one_sentence_the_map_and_the_newest_run_with_a_bound(seeds: History) -> None:
    test = opened("flops")
    said = words(test)
    assert "stages take 392 ms a page, at least 224 ms (1.75x). 162 ms of the 168 ms lost are decode" in said
    assert "bound by memory, at 57.6 % of its bandwidth. FLOPs of 34 of 34 runs are exact." in said
    (notes,) = [each for each in test.caption if "without FLOPs" in each.value]
    assert notes.value == "3 runs without FLOPs, 12 without a lower bound."
    assert "device not known (7), pages read together share their steps (5)" in notes.help.replace("\\", "")
    overview, stages = (frame.value for frame in test.dataframe)
    assert overview.iloc[-1, 1] == "1.75x" and len(overview.columns) == 1 + 29
    assert stages["stage"].tolist()[:2] == ["decode", "sam"]
    assert stages["lost_ms"].is_monotonic_decreasing
    assert command(test, "--run") == f"dsocr flops report --run {NEWEST}"
    assert dict(test.query_params) == {}


def test_the_shown_sql_and_command_give_the_same_figures(
    seeds: History, capsys: pytest.CaptureFixture[str]
) -> None:
    test = opened("flops", run=NEWEST)
    stages = test.dataframe[1].value
    rows = seeds.sql(command(test, "FROM flop_gaps\n    WHERE ([")).set_index("stage")
    shown = stages.set_index("stage").loc["decode", "lost_ms"]
    assert rows.loc["decode", "lost_ms"] == pytest.approx(shown)
    assert main([*shlex.split(command(test, "--run"))[1:], "--json", f"--history={SEED_LOCATION}"]) == 0
    printed = json.loads(capsys.readouterr().out)["stages"]
    assert [row["stage"] for row in printed] == stages["stage"].tolist()
    assert [row["lost_ms"] for row in printed] == pytest.approx(stages["lost_ms"].tolist())


# --- what if ------------------------------------------------------------------------------------------


def costs(test: AppTest) -> pd.DataFrame:
    return test.dataframe[-1].value.set_index("stage")


@pytest.mark.parametrize(
    "address", [{"tokens": "9"}, {"model": "Embedded", "preset": "base", "batch": "4", "dtype": "float32"}]
)
def test_the_command_prints_the_same_costs(
    address: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = opened("flops", **address)
    monkeypatch.chdir(PROJECT_ROOT)
    assert main([*shlex.split(command(test, "--config"))[1:], "--json"]) == 0
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    for name in ("sam", "prefill", "decode"):
        assert costs(test).loc[name, "flops"] == stages[name]["flops"]
        assert costs(test).loc[name, "bound_s"] == pytest.approx(stages[name]["bound_s"])


@pytest.mark.parametrize(("name", "field"), [("width", "width is 0"), ("prompt", "prompt_tokens is 0")])
def test_sizes_that_cannot_be_are_one_line_naming_the_field(name: str, field: str) -> None:
    test = opened("flops", **{name: "0"})
    (said,) = errors(test)
    assert field in said and "everything" not in test.dataframe[-1].value["stage"].tolist()
    number = test.number_input(key=f"flops {name}")
    assert (number.min, number.max) == (PARAMETERS[name].least, PARAMETERS[name].most)
    checked(number.set_value(700).run())  # the control is there to mend it
    assert not errors(test) and "everything" in costs(test).index
