"""Sweeps, requirements and earlier sweeps of the FLOPs page, without a browser."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analytic_model import __main__ as command_line
from analytic_model.earlier_estimates import Estimate
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig, load_config
from dsocr_core.history.importers.detect import import_paths
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.settings import EMBEDDED_CHECKPOINT
from pages.widgets.flops import counting_job, earlier
from pages.widgets.flops.counting_job import OnStage
from pages.widgets.flops.models import PUBLISHED
from pages.widgets.flops.requirements_tab import bench_rates, best_words, same_model, timed
from pages.widgets.shared import resources
from tests.support.paths import ROOT

PAGE = ROOT / "pages" / "flops.py"
COUNTED = 4_555_782_396_416
POINT = {
    "image_tokens_total": 903, "height_crop_num": 2, "width_crop_num": 3, "batch_size": 1,
    "context_len": 903, "decode_steps": 100,
    "prefill_stagecost": {
        "prefill_eager": {"flops_tflops": 4.578984104448, "flops_tensor_tflops": 4.576061935616},
        "prefill_vendor": {"flops_tflops": COUNTED / 1e12},
    },
}  # fmt: skip


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        monkeypatch.setattr(resources, "history", lambda: opened)
        yield opened


@pytest.fixture
def swept(history: History, tmp_path: Path) -> History:
    file = tmp_path / "e2e_vision_prefill_sweep.json"
    file.write_text(json.dumps({"points": [POINT]}))
    assert len(import_paths(history, [file]).imported) == 1
    return history


def opened(**address: str) -> AppTest:
    test = AppTest.from_file(str(PAGE), default_timeout=120)
    for name, value in address.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception and not test.error
    return test


def plain(text: str) -> str:
    """Without the signs that keep Markdown from being read."""
    return text.replace("\\", "")


def figure(test: AppTest) -> dict[str, object]:
    found: dict[str, object] = json.loads(test.get("plotly_chart")[0].proto.spec)
    return found


def test_the_tab_answers_at_once_with_a_curve_an_engine(history: History) -> None:
    test = opened(view="Sweeps", axis="prompt", quantity="bytes")
    names = [trace["name"] for trace in figure(test)["data"]]  # type: ignore[attr-defined]
    assert names == ["eager", "flash"]
    began = time.process_time()
    test.segmented_control(key="flops axis").set_value("batch").run()
    assert time.process_time() - began < 5  # half a second without the checks of a test
    assert "over pages at once" in plain(" ".join(caption.value for caption in test.caption))


def test_the_commands_print_the_figures_shown(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    test = opened(view="Sweeps", axis="tiles", quantity="flops", engines="flash", upto="6", head="all")
    words = shlex.split(next(code.value for code in test.code if "analytic_model sweep" in code.value))
    assert command_line.main(words[3:]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split(",")
    trace = figure(test)["data"][0]  # type: ignore[index]
    assert trace["customdata"][-1] == f"{float(last[-1]) / 1e12:.2f} TFLOP"


def test_counts_of_torch_are_dots_on_the_curve_of_vision_and_prefill(swept: History) -> None:
    test = opened(view="Sweeps", axis="tiles", quantity="flops", engines="eager", upto="9")
    names = [trace["name"] for trace in figure(test)["data"]]  # type: ignore[attr-defined]
    assert names == ["eager", "vision and prefill", "counted by torch"]
    dots = earlier.counted_dots("tiles", 9)
    assert dots[["x", "flops"]].values.tolist() == [[6, COUNTED]]
    assert earlier.counted_dots("image-tokens", 800).empty


def test_earlier_estimates_stand_beside_the_model_with_their_causes(swept: History) -> None:
    test = opened(view="Earlier sweeps")
    words = plain(" ".join(caption.value for caption in test.caption))
    assert "The causes add up to each gap, to the last FLOP." in words
    assert "torch counted 1 of them" in words
    causes = test.dataframe[0].value.set_index("cause")
    assert causes.loc["not explained", "largest"] == "0 FLOP"
    points = test.dataframe[1].value.iloc[0]
    assert points["grid"] == "3 x 2" and points["estimate"] == "4,578,984,104,448"
    assert points["counted by torch"] == f"{COUNTED:,}"


def test_points_are_counted_here_too_and_the_count_stands_beside_them(
    swept: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = 4_555_781_009_408

    def count(config: ModelConfig, found: Sequence[Estimate], on_stage: OnStage) -> Iterator[int]:
        assert [estimate.grid for estimate in found] == [(3, 2)]
        return iter([exact])

    monkeypatch.setattr(counting_job.CountedEstimates.__init__, "__defaults__", (count,))
    test = opened(view="Earlier sweeps")
    test.button(key="flops count").click().run()
    test.session_state["flops counted estimates"].join(60)
    test.run()
    assert test.dataframe[1].value.iloc[0]["counted here"] == f"{exact:,}"
    words = plain(" ".join(caption.value for caption in test.caption))
    assert "Counted here, 1 of them are exactly the model's." in words


def test_estimates_are_not_held_against_another_model(swept: History) -> None:
    test = opened(view="Earlier sweeps", model="Embedded")
    assert "estimates are of the published sizes" in plain(" ".join(each.value for each in test.caption))
    assert test.dataframe[0].value.columns.tolist() == ["grid", "image tokens", "exact"]


def test_without_a_sweep_the_tab_says_how_to_get_one(history: History) -> None:
    assert "Import one" in opened(view="Earlier sweeps").info[0].value


def test_requirements_answer_in_a_sentence(history: History) -> None:
    test = opened(view="Requirements", ttft="50.0")
    assert "50.0 ms to the first token at 2 x 3 tiles: 85.3 TFLOP/s" in plain(test.markdown[0].value)
    assert test.dataframe[0].value["compute rate"].iloc[-1] == "85.3 TFLOP/s"
    assert PUBLISHED.name in next(code.value for code in test.code if "require" in code.value)
    tpot = opened(view="Requirements", target="tpot", tpot="1.0")
    assert "1.00 ms a token" in plain(tpot.markdown[0].value)


def test_pages_a_second_are_those_that_bench_measured_of_whole_pages(tmp_path: Path) -> None:
    engines = [
        {"name": "fast", "pages_per_s": {"median": 26.0}}, {"name": "eager", "pages_per_s": None},
        {"name": "odd", "pages_per_s": {"median": "many"}}, {"name": "none", "pages_per_s": {"median": 0}},
    ]  # fmt: skip
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"engines": engines}))
    assert bench_rates(file) == {"fast": 26.0}
    for content in ("", "[]", '{"engines": 3}', '{"engines": [{}]}'):
        file.write_text(content)
        assert bench_rates(file) == {}
    assert bench_rates(tmp_path / "absent.json") == {}


def test_a_pages_time_is_that_of_the_stages_that_follow_one_another() -> None:
    times = pd.DataFrame(
        [("r", "p", "fast", stage, ms) for stage, ms in (("sam", 7.0), ("prefill", 12.0), ("decode", 400.0),
                                                         ("preprocess", 40.0))],
        columns=["run_id", "page", "backend", "stage", "milliseconds"],
    )  # fmt: skip
    assert timed(times, "pages")["milliseconds"].tolist() == [452.0]
    assert timed(times, "ttft")["milliseconds"].tolist() == [12.0]
    assert timed(times, "tpot")["milliseconds"].tolist() == [400.0]


def test_pages_read_together_stand_beside_the_best_of_one_at_a_time(history: History) -> None:
    selection = SimpleNamespace(workload=Workload.from_image(1280, 1280))

    def row(backend: str, grid: str, tokens: int, seconds: float, together: bool) -> dict[str, object]:
        return {"run": "r", "backend": backend, "device": "H200", "grid": grid, "image_tokens": tokens,
                "seconds": seconds, "together": together}  # fmt: skip

    rows = [row("eager", "2 x 2", 693, 3.0, False), row("fast", "2 x 2", 693, 0.5, False)]
    words = best_words(selection, "pages", pd.DataFrame([*rows, row("fast", "2 x 2", 693, 0.04, True)]))
    assert words == "fast reached 2 pages a second on H200 (r); fast reached 25 pages a second on H200 (r)"
    far = [row("fast", "1 x 2", 483, 0.010, False), row("fast", "2 x 3", 903, 0.012, False)]
    near = best_words(selection, "ttft", pd.DataFrame([*far, row("fast", "3 x 3", 1203, 0.001, False)]))
    assert near.startswith("fast needed 10.0 ms at 1 x 2 tiles on H200")


def test_only_runs_of_the_same_model_say_what_was_reached() -> None:
    """A small model on a fast device would be said to have reached more than the device can."""
    published, embedded = load_config(PUBLISHED), load_config(EMBEDDED_CHECKPOINT)
    for checkpoint, model in (
        ("data/mini", embedded), ("random:published/config.json", published),
        ("published/checkpoint", published),
        ("nowhere/config.json", None), ("", None),
    ):  # fmt: skip
        ran = RunRecord("r", "2026-01-01T00:00:00+00:00", "dsocr", settings={"checkpoint": checkpoint})
        for config in (published, embedded):
            assert same_model(config, ran) is (config == model)
