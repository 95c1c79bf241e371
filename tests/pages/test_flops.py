"""The FLOPs page driven without a browser."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.cli.main import main
from dsocr_core.runs.store import SEED_LOCATION, History
from dsocr_core.settings import Settings
from pages.widgets.flops.address import PARAMETERS
from pages.widgets.flops.runs import newest
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import Runner
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.opened_page import checked, errors, figures, opened, strips, words

A4 = {"width": "1654", "height": "2339"}


class Desk:
    """The page with made-up samples of which one is recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        samples = folder / "samples"
        pipeline = FabricatedPipeline(make_samples(samples))
        request = Settings(preset="small").request(samples / "invoice.png", "invoice.png")
        pipeline.record(request)
        runner = Runner(lambda settings: pipeline)
        monkeypatch.setattr(resources, "runner", lambda: runner)
        monkeypatch.setattr(sources, "SAMPLES", samples)
        monkeypatch.setenv("DSOCR_ROOTS", str(folder))

    def open(self, **address: str) -> AppTest:
        return opened("flops", **({"work": "Sizes"} | address))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    st.cache_data.clear()
    return Desk(tmp_path, monkeypatch)


def command(test: AppTest) -> str:
    return test.code[0].value


# --- what is shown --------------------------------------------------------------------------------


def test_sizes_of_the_published_model_are_the_contracts(desk: Desk) -> None:
    test = desk.open()
    assert not errors(test)
    (strip,) = strips(test)
    assert "1,654 x 2,339 px, gundam, tiles 2 x 3" in strip
    assert "views 7" in strip
    assert "903 image + 10 text" in strip
    table = test.dataframe[0].value.set_index("stage")
    # From the counts of base (one 1024 view) and Gundam 2x2 (4 tiles of 640 more) in the vendor contract:
    # 976.9 G + 6 / 4 * (2279.4 G - 976.9 G)
    assert table.loc["sam", "flops"] == 2_930_633_932_800
    assert table.loc["everything", "parameters"] == 3_336_106_240
    assert dict(test.query_params) == {"work": "Sizes"}


# --- the address ----------------------------------------------------------------------------------


def test_the_address_holds_the_whole_state(desk: Desk) -> None:
    state = {
        "view": "Against measured", "work": "Sizes",
        "model": "Embedded", "width": "800", "height": "600", "preset": "large",
        "prompt": "33", "tokens": "44", "batch": "8", "hardware": "h100",
        "dtype": "float32", "attention": "flash_attention_2",
    }  # fmt: skip
    test = desk.open(**state)
    assert not errors(test)
    assert {name: "".join(text) for name, text in test.query_params.items()} == state
    checked(test.slider(key="flops tokens").set_value(55).run())
    assert "".join(test.query_params["tokens"]) == "55"
    assert "new 55" in strips(test)[0]


# --- controls -------------------------------------------------------------------------------------


def test_a_field_takes_what_a_link_may_say_and_no_more(desk: Desk) -> None:
    fields = {str(field.key).removeprefix("flops "): field for field in desk.open().number_input}
    assert {*fields} == {"width", "height", "prompt"}
    for name, field in fields.items():
        assert (field.min, field.max) == (PARAMETERS[name].least, PARAMETERS[name].most), name


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "field"), [("width", "width is 0"), ("prompt", "prompt_tokens is 0")])
def test_sizes_that_cannot_be_are_one_line_naming_the_field(desk: Desk, name: str, field: str) -> None:
    test = desk.open(**{name: "0"})
    (said,) = errors(test)
    assert field in said
    assert not test.dataframe
    checked(test.number_input(key=f"flops {name}").set_value(700).run())  # the control is there to mend it
    assert not errors(test)
    assert test.dataframe


def test_a_bad_config_path_is_one_line(desk: Desk) -> None:
    def error(path: str) -> str:
        test = desk.open(model="File", config=path)
        assert not figures(test)
        (line,) = errors(test)
        assert "\n" not in line
        return line

    assert "type its path" in error("")
    assert "outside the folders this page may read" in error("/etc/passwd")
    data = json.loads((EMBEDDED_CHECKPOINT / "config.json").read_text())
    del data["vision_config"]["width"]["sam_vit_b"]["layers"]
    (desk.folder / "config.json").write_text(json.dumps(data))
    assert "sam_vit_b.layers is missing" in error(str(desk.folder))


# --- the calls it shows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [{"tokens": "9"}, {"model": "Embedded", "preset": "base", "batch": "4", "dtype": "float32"},
     {"attention": "flash_attention_2"}],
)  # fmt: skip
def test_the_call_gives_the_same_figures(
    desk: Desk, address: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = desk.open(**address)
    table = test.dataframe[0].value.set_index("stage")
    words = shlex.split(command(test))
    assert words[:3] == ["dsocr", "flops", "report"]
    monkeypatch.chdir(PROJECT_ROOT)
    assert main([*words[1:], "--json"]) == 0
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    for name in ("sam", "prefill", "decode"):
        assert table.loc[name, "flops"] == stages[name]["flops"]
        assert table.loc[name, "bound_s"] == pytest.approx(stages[name]["bound_s"])


# --- facts ----------------------------------------------------------------------------------------


def test_a_recorded_example_of_the_published_config_stands_under_the_roof_of_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History(tmp_path / "own", also=[SEED_LOCATION]) as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        runs = made.runs(gpus=["NVIDIA H200"], profiled=False)
        records = [made.record(run) for run in runs.loc[runs["checkpoint"] != "data/mini", "run_id"]]
        alone = next(run for run in records if run.engine == "fast")
        test = opened("flops", work="Run", run=alone.id, view="Against measured")
        assert "Diamonds: as recorded" in words(test) and "over the least time" in words(test)
        several = next(run for run in records if "pages together" in str(run.engine))
        test = opened("flops", work="Run", run=several.id, view="Against measured")
        assert "No bound: pages read together share each step" in words(test)
        assert "Diamonds: as recorded" not in words(test) and "above the least" not in words(test)


def test_a_run_opens_on_its_page_of_median_time_not_on_the_one_that_has_the_warm_up_in_it() -> None:
    with History(SEED_LOCATION) as history:
        runs = history.runs(engines=["fast"], profiled=False)
        run_id = runs.loc[runs["pages"] == 14, "run_id"].iloc[0]
        totals, _ = history.query("page_totals", run_ids=[run_id])
    times = totals.groupby("page")["milliseconds"].sum()
    test = opened("flops", work="Run", run=run_id, view="Against measured")
    opens_on = test.session_state["flops page"]
    assert (times < times[opens_on]).sum() == len(times) // 2
    assert times.idxmax() != opens_on


def test_a_run_that_names_no_checkpoint_is_not_what_the_page_opens_on() -> None:
    columns = ["run_id", "gpu", "profiled", "checkpoint", "engine"]
    rows = [
        ("nameless", "H100", False, None, "fast"), ("profiled", "H100", True, "c", "fast"),
        ("several", "H100", False, "c", "fast, 64 pages together"), ("cpu", None, False, "c", None),
        ("h100", "H100", False, "c", "fast"),
    ]  # fmt: skip
    for count, expected in ((5, "h100"), (4, "profiled"), (1, "nameless")):
        assert newest(pd.DataFrame(rows[:count], columns=columns)) == expected


def test_the_page_opens_on_the_newest_run_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "own", also=[SEED_LOCATION]) as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        runs = made.runs(sources=["dsocr"], profiled=False)
        runs = runs[runs["gpu"].notna() & ~runs["engine"].str.contains("together")]
        test = opened("flops")
        assert test.session_state["flops run"] == runs["run_id"].iloc[0]
        assert test.query_params.get("work") is None
        assert "on H200 SXM" in strips(test)[0]
