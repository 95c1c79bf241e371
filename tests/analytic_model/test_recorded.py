"""What recorded runs say: pages a second, times that follow one another, the best of them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analytic_model.recorded import PUBLISHED, bench_rates, best_words, same_model, stage_points, timed
from analytic_model.workload import Workload
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.cli.main import main
from dsocr_core.models.family import load_config
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.store import SEED_LOCATION, History

ALONE, TOGETHER = "20261123-231635-a7591efe", "20261123-230156-9efb4d4a"
"""Runs of the fast engine that come along."""


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
    stages = (("sam", 7.0), ("prefill", 12.0), ("decode", 400.0), ("preprocess", 40.0))
    rows = [("r", "p", "fast", stage, ms) for stage, ms in stages]
    times = pd.DataFrame(rows, columns=["run_id", "page", "backend", "stage", "milliseconds"])
    assert timed(times, "pages")["milliseconds"].tolist() == [452.0]
    assert timed(times, "ttft")["milliseconds"].tolist() == [12.0]
    assert timed(times, "tpot")["milliseconds"].tolist() == [400.0]


def test_pages_read_together_stand_beside_the_best_of_one_at_a_time() -> None:
    work = Workload.from_image(1280, 1280)

    def row(backend: str, grid: str, tokens: int, seconds: float, together: bool) -> dict[str, object]:
        return {"run_id": "r", "backend": backend, "device": "H200", "grid": grid, "image_tokens": tokens,
                "seconds": seconds, "together": together}  # fmt: skip

    rows = [row("eager", "2 x 2", 693, 3.0, False), row("fast", "2 x 2", 693, 0.5, False)]
    words = best_words(pd.DataFrame([*rows, row("fast", "2 x 2", 693, 0.04, True)]), work, "pages")
    alone, together = "fast reached 2 pages a second", "fast reached 25 pages a second"
    assert words == f"{alone} on H200 (run r); {together} on H200 (run r)"
    far = [row("fast", "1 x 2", 483, 0.010, False), row("fast", "2 x 3", 903, 0.012, False)]
    near = best_words(pd.DataFrame([*far, row("fast", "3 x 3", 1203, 0.001, False)]), work, "ttft")
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


def test_a_stage_stands_where_its_counted_launches_do_together() -> None:
    """Two launches of 20 us: 6e9 FLOPs, 4e6 bytes; a third has no count and is left out."""
    launches = pd.DataFrame({"number": [0, 1, 2], "stage": ["decode", "decode", "decode"]})
    names = {
        "gpu__time_duration.sum": "us", "dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": None,
    }  # fmt: skip
    values = {0: (10.0, 1e6, 0.0, 2e9), 1: (10.0, 2e6, 1e6, 4e9), 2: (10.0, 2e6, 1e6, 0.0)}
    metrics = pd.DataFrame(
        [
            {"number": number, "metric": name, "value": value, "unit": unit}
            for number, of in values.items()
            for (name, unit), value in zip(names.items(), of, strict=True)
        ]
    )
    (point,) = stage_points(launches, metrics).to_dict("records")
    assert (point["stage"], point["kind"], point["launches"]) == ("decode", "counted", 2)
    assert point["intensity"] == 1500 and point["flops_per_s"] == pytest.approx(3e14)
    assert stage_points(launches, metrics[metrics["number"] == 2]).empty


def test_a_run_is_priced_by_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """At 3.60 an hour 1,000 pages cost their seconds. Of pages together one page's bound is no bound."""
    stages = {}

    def priced(run: str) -> dict[str, float]:
        words = ["flops", "against", run, "--price", "3.6", "--history", str(SEED_LOCATION), "--json"]
        assert main(words) == 0
        document = json.loads(capsys.readouterr().out)
        stages[run], found = document["stages"], document["cost_of_1000_pages"]
        assert isinstance(found, dict)
        return found

    with History(SEED_LOCATION) as history:
        rates = {run: bench_rates(history.file(run, "bench.json"))["fast"] for run in (ALONE, TOGETHER)}
    alone, together = priced(ALONE), priced(TOGETHER)
    assert (
        alone["as_recorded"] == pytest.approx(1 / rates[ALONE]) and alone["at_least"] < alone["as_recorded"]
    )
    assert together == {"as_recorded": pytest.approx(1 / rates[TOGETHER])}
    shared = ("bound_s", "above_bound", "bytes", "intensity", "flops_per_s", "mfu", "bandwidth_share")
    assert all(stage["measured_s"] and stage[name] is None for stage in stages[TOGETHER] for name in shared)
    assert all(stage["measured_s"] and stage["bound_s"] and stage["bytes"] for stage in stages[ALONE])
