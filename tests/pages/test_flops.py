"""The FLOPs page driven without a browser; torch's counter is made up."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.requirements import TARGETS
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.base.words import significant
from dsocr_core.cli.main import main
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config
from dsocr_core.models.stages import Stage
from dsocr_core.runs.store import SEED_LOCATION, History
from dsocr_core.settings import Settings
from pages.widgets.flops import measured_tab as flop_measured
from pages.widgets.flops.address import PARAMETERS, VIEWS
from pages.widgets.flops.measured_tab import counting_job
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


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Puts something else for torch's counter."""

    def put(count: Callable[..., Any]) -> None:
        monkeypatch.setattr(flop_measured, "counting_job", partial(counting_job, count=count))

    return put


def command(test: AppTest) -> str:
    return test.code[0].value


def perfect(config: ModelConfig, workload: Workload, attention: str, on_stage: Any) -> Any:
    """A counter that counts what is predicted."""
    prediction = predict(config, workload, Policy(attention=attention))
    counted = {}
    for stage, cost in prediction.stages.items():
        on_stage(stage)
        counted[stage] = {name: part.flops for name, part in cost.by_operator().items() if part.flops}
    return counted


def measured(test: AppTest) -> AppTest:
    """Presses the button and views again when the counting is over."""
    checked(test.button(key="flops measure").click().run())
    test.session_state["flops measurement"].join(60)
    return checked(test.run())


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


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("work", ["Sizes", "Recorded page"])
def test_every_view_draws_for_every_kind_of_work(desk: Desk, view: str, work: str) -> None:
    test = desk.open(view=view, work=work, head="all", causal="halved")
    assert not errors(test)
    assert test.session_state["flops view"] == view
    assert figures(test) or view == "Cost"
    assert command(test).startswith("dsocr flops")
    assert test.get("download_button")


def test_a_recorded_page_is_its_own_workload(desk: Desk) -> None:
    test = desk.open(work="Recorded page", view="Against measured")
    (strip,) = strips(test)
    assert "900 x 1,200 px, small" in strip
    assert "111 image + 3 text" in strip  # fabricated: 114 prompt ids, 111 of them image
    assert "float32, sdpa" in strip
    assert "**not measured**" in test.markdown[0].value
    recorded = test.dataframe[0].value.set_index("stage")["measured_s"]
    assert recorded["sam"] == pytest.approx(0.061)
    assert recorded["prefill with vision"] == pytest.approx(0.118)
    assert recorded["prefill"] == pytest.approx(0.118 - 0.061 - 0.0225 - 0.0014 - 0.00062)
    vendor = desk.open(work="Recorded page", view="Against measured", backend="vendor")
    assert "float32, eager" in strips(vendor)[0]
    assert math.isnan(vendor.dataframe[0].value.set_index("stage").loc["vision_fusion", "measured_s"])


def test_a_page_nobody_read_offers_compare(desk: Desk) -> None:
    test = desk.open(work="Recorded page", read="large")
    assert not errors(test)
    assert "eager has not read invoice" in test.markdown[0].value.replace("\\", "")
    assert test.button(key="flops compare").label == "Go to Compare"


# --- the address ----------------------------------------------------------------------------------


def test_the_address_holds_the_whole_state(desk: Desk) -> None:
    state = {
        "view": "Sweep", "quantity": "limits", "work": "Sizes",
        "model": "Embedded", "width": "800", "height": "600", "preset": "large",
        "prompt": "33", "tokens": "44", "batch": "8", "hardware": "custom", "peak": "1.5", "bandwidth": "250",
        "dtype": "float32", "attention": "flash_attention_2", "unsupported": "on", "causal": "halved",
        "head": "all", "padding": "off", "nesting": "on", "axis": "prompt",
    }  # fmt: skip
    test = desk.open(**state)
    assert not errors(test)
    assert {name: "".join(text) for name, text in test.query_params.items()} == state
    checked(test.slider(key="flops tokens").set_value(55).run())
    assert "".join(test.query_params["tokens"]) == "55"
    assert "new 55" in strips(test)[0]


def test_what_was_chosen_comes_back_after_other_work(desk: Desk) -> None:
    test = desk.open(**A4, tokens="77")
    checked(test.button_group(key="flops work").set_value("Recorded page").run())
    assert "small" in strips(test)[0]
    checked(test.button_group(key="flops work").set_value("Sizes").run())
    assert "new 77" in strips(test)[0]


# --- controls -------------------------------------------------------------------------------------


def test_the_shape_slider_keeps_the_area(desk: Desk) -> None:
    test = desk.open(width="1000", height="1000")
    assert test.select_slider(key="flops aspect").value == "1:1"
    checked(test.select_slider(key="flops aspect").set_value("4:1").run())
    assert (test.session_state["flops width"], test.session_state["flops height"]) == (2000, 500)
    assert "tiles 4 x 1" in strips(test)[0]
    assert test.select_slider(key="flops aspect").value == "4:1"


def test_switches_recompute_at_once(desk: Desk) -> None:
    test = desk.open(attention="flash_attention_2")
    test.session_state["flops counting"] = True
    checked(test.run())
    before = test.dataframe[0].value.set_index("stage")["flops"]
    checked(test.toggle(key="flops unsupported").set_value(True).run())
    with_core = test.dataframe[0].value.set_index("stage")["flops"]
    assert with_core["prefill"] != before["prefill"]
    assert with_core["sam"] == before["sam"]
    least = next(button for button in test.button if button.label == "Least work")
    checked(least.click().run())
    assert test.session_state["flops causal"] == "halved"
    assert test.session_state["flops padding"] is False
    least_sam = test.dataframe[0].value.set_index("stage")["flops"]["sam"]
    assert least_sam < before["sam"]
    checked(next(button for button in test.button if button.label == "As torch").click().run())
    assert (test.dataframe[0].value.set_index("stage")["flops"] == before).all()


def test_own_figures_are_a_device(desk: Desk) -> None:
    slow = desk.open(hardware="custom", peak="1", bandwidth="1000000")
    # 2,930,633,932,800 FLOP at 1 TFLOP/s
    assert slow.dataframe[0].value.set_index("stage").loc["sam", "bound_s"] == pytest.approx(2.9306339)
    assert "on your device" in strips(slow)[0]
    assert "--peak 1 --bandwidth 1e+06" in command(slow)
    priced = desk.open(hardware="custom", peak="1", bandwidth="1000000", price="3.6")
    least = priced.dataframe[0].value.set_index("stage").loc["everything", "bound_s"]
    assert f"1,000 pages at least {significant(least)}, at 3.6 an hour" in strips(priced)[0]
    assert "--price 3.6" in command(priced)


@pytest.mark.parametrize(
    "address",
    [{"hardware": "custom"}, {"view": "Sweep"}, *({"view": "Requirements", "target": of} for of in TARGETS)],
    ids=str,
)
def test_a_field_takes_what_a_link_may_say_and_no_more(desk: Desk, address: dict[str, str]) -> None:
    fields = {str(field.key).removeprefix("flops "): field for field in desk.open(**address).number_input}
    assert {"width", "height", "prompt", "price"} < {*fields}
    for name, field in fields.items():
        assert (field.min, field.max) == (PARAMETERS[name].least, PARAMETERS[name].most), name


def test_curves_that_are_the_same_are_one(desk: Desk) -> None:
    names = {
        quantity: [trace["name"] for trace in figures(desk.open(view="Sweep", quantity=quantity))[0]["data"]]
        for quantity in ("flops", "activations")
    }
    assert names == {"flops": ["Eager and flash"], "activations": ["Eager", "Flash"]}
    assert len(figures(desk.open(view="Sweep", sweep_as="stages"))) == 1


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


# --- against the counter --------------------------------------------------------------------------


def test_a_counter_that_agrees_is_exact_and_stays_with_its_workload(desk: Desk, counter: Any) -> None:
    counter(perfect)
    test = measured(desk.open(view="Against measured", tokens="5"))
    assert strips(test)[1].startswith("EXACT")
    assert "unexplained 0 FLOP" in strips(test)[1]
    table = test.dataframe[0].value
    assert set(table["gap"]) == {0}
    assert list(table.columns) == ["stage", "analytic", "measured", "gap", "gap_share", "unexplained"]
    checked(test.slider(key="flops tokens").set_value(6).run())
    assert len(strips(test)) == 1
    assert "**not measured**" in test.markdown[0].value
    checked(test.slider(key="flops tokens").set_value(5).run())
    assert strips(test)[1].startswith("EXACT")


def test_every_cause_is_named_and_nothing_is_left_over(desk: Desk, counter: Any) -> None:
    counter(perfect)
    test = measured(
        desk.open(view="Against measured", tokens="5", head="all", causal="halved", padding="off",
                  nesting="on", attention="flash_attention_2")
    )  # fmt: skip
    assert strips(test)[1].startswith("EXPLAINED")
    assert "unexplained 0 FLOP" in strips(test)[1]
    table = test.dataframe[0].value.set_index("stage")
    for cause in ("window padding", "lm_head positions", "FlashAttention core", "nesting"):
        assert set(table[cause]) != {0}, cause
    assert table.loc["sam", "window padding"] < 0
    assert table.loc["prefill", "lm_head positions"] == 912 * 2 * 1280 * 129280


def test_what_no_convention_explains_is_unexplained(desk: Desk, counter: Any) -> None:
    def off(*arguments: Any) -> Any:
        counted = perfect(*arguments)
        counted[Stage.CLIP]["addmm"] += 1
        return counted

    counter(off)
    test = measured(desk.open(view="Against measured", tokens="5", head="all"))
    assert strips(test)[1].startswith("UNEXPLAINED GAP")
    assert "unexplained 1 FLOP" in strips(test)[1]
    assert test.dataframe[0].value.set_index("stage").loc["clip", "unexplained"] == -1


def test_a_measurement_that_fails_or_is_cancelled_leaves_the_page_alive(desk: Desk, counter: Any) -> None:
    def refuse(config: Any, workload: Any, attention: str, on_stage: Any) -> Any:
        raise DsocrError("no torch here")

    counter(refuse)
    test = measured(desk.open(view="Against measured"))
    assert errors(test) == ["no torch here"]

    def crash(config: Any, workload: Any, attention: str, on_stage: Any) -> Any:
        raise RuntimeError("internal detail")

    counter(crash)
    test = measured(desk.open(view="Against measured"))
    [unforeseen] = errors(test)
    assert unforeseen.startswith("unforeseen RuntimeError, number ") and "internal" not in unforeseen

    counter(perfect)
    config = load_config(EMBEDDED_CHECKPOINT)
    cancelled = counting_job((config, Workload.from_image(640, 640), "sdpa"), perfect)
    cancelled.cancel()
    cancelled.start()
    cancelled.join(60)
    assert cancelled.view().state == "cancelled"
    assert cancelled.result is None
    assert not errors(measured(desk.open(view="Against measured", tokens="3")))


# --- the calls it shows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [{"tokens": "9"}, {"model": "Embedded", "preset": "base", "batch": "4", "dtype": "float32"},
     {"attention": "flash_attention_2", "causal": "halved", "head": "all", "padding": "off",
      "unsupported": "on"},
     {"work": "Recorded page", "backend": "vendor"}],
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
