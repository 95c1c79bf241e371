"""FLOPs of shapes of pages in the history: how they are counted, kept and asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analytic_model import PUBLISHED, counted
from analytic_model.counted import flop_rows, workload_of
from analytic_model.measure import Meter
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.roofline import least_work
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.cli.main import main
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config, parse_config, preset_named, spec_of
from dsocr_core.page.tiling import image_token_count
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.shapes import Shape
from tests.support.seeded_weights import WINDOW, tiny_config, tiny_ocr2_config, tiny_unlimited_config, written

TINY = parse_config(tiny_config())
WINDOWED = parse_config(tiny_unlimited_config())
MEMBERS = {
    "deepseek-ocr": tiny_config,
    "deepseek-ocr-2": tiny_ocr2_config,
    "unlimited-ocr": tiny_unlimited_config,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def shape_of(prompt: int, new: int, config: ModelConfig = TINY) -> Shape:
    family = spec_of(config)
    name = "tiny" if config is TINY else family.preset
    image = image_token_count(preset_named(name, family), (1, 1), family.newline)
    return Shape(name, (1, 1), image + prompt, new)


# --- two counted tokens in place of all -----------------------------------------------------------------


@pytest.mark.parametrize("config", [TINY, WINDOWED], ids=["growing", "windowed"])
def test_two_counted_tokens_and_the_sum_between_are_the_full_count(config: ModelConfig) -> None:
    lengths = (5, 1), (5, 2), (9, 3 * WINDOW), (30, 41)
    works = {shape: workload_of(config, shape) for shape in (shape_of(*each, config) for each in lengths)}
    found = counted.measured(config, works)
    for shape, work in works.items():
        full = Meter(config, whole=True).measure(work)
        assert found[shape] == {stage.value: flops.total() for stage, flops in full.items()}, shape


def test_a_shape_is_counted_once_and_again_where_the_cache_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    first = flop_rows(TINY, [shape_of(5, 2)], "float32")
    with monkeypatch.context() as patch:
        patch.setattr(counted, "_count", lambda *_: pytest.fail("counted again"))
        assert flop_rows(TINY, [shape_of(5, 2)], "float32") == first
    smaller = parse_config(tiny_config() | {"num_hidden_layers": 2})
    assert flop_rows(smaller, [shape_of(5, 2)], "float32") != first
    for file in (cache / "flops").iterdir():
        file.write_text(json.dumps({str(shape_of(5, 2)): {"sam": "many"}}))
    assert flop_rows(TINY, [shape_of(5, 2)], "float32") == first


# --- recorded ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", MEMBERS)
def test_a_saved_bench_has_analytic_and_measured_flops_of_its_shape(
    member: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without them is counted when it is asked for."""
    config = MEMBERS[member]()
    family = spec_of(parse_config(config))
    words = [
        "bench", f"--checkpoint={written(config, tmp_path / 'model')}", "--device=cpu", "--size=64x64",
        f"--preset={'tiny' if member == 'deepseek-ocr' else family.preset}", "--tokens=7", "--repeat=1",
        "--json", f"--history={tmp_path / 'history'}",
    ]  # fmt: skip
    assert main([*words, "--save"]) == 0
    [run] = json.loads(capsys.readouterr().out)["saved"]
    with History(tmp_path / "history") as history:
        assert history.record(run).config == config
        rows, sql = history.query("flop_gaps", run_ids=[run])
        assert history.sql(sql).equals(rows)
        assert set(rows["stage"]) == {stage.value for stage in family.computed}
        assert (rows["gap_flops"] == 0).all() and set(rows["counter"]) == {"torch"}
        assert (rows["milliseconds"] > 0).all() and set(rows["no_bound"]) == {"device not known"}
    monkeypatch.setattr("dsocr_core.measure.bench._flops", lambda *_: [])
    assert main([*words, "--save"]) == 0
    [bare] = json.loads(capsys.readouterr().out)["saved"]
    with History(tmp_path / "history") as history:
        assert history.query("flop_gaps", run_ids=[bare])[0].empty
    report = ["flops", "report", f"--history={tmp_path / 'history'}", "--json", "--run"]
    assert main([*report, bare]) == main([*report, run]) == 0
    counts = [
        [(row["stage"], row["shape"], row["analytic"], row["counted"]) for row in json.loads(line)["stages"]]
        for line in capsys.readouterr().out.splitlines()
    ]
    assert sorted(counts[0]) == sorted(counts[1]) and len(counts[0]) == len(rows)


# --- the runs that come along ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with History(tmp_path_factory.mktemp("history"), SEED_LOCATION) as history:
        rows, _ = history.query("flop_gaps")
        shapes = history.sql(
            "SELECT DISTINCT run_id, dtype, backend, preset, grid_columns, grid_rows, prompt_tokens, "
            "new_tokens FROM readings JOIN (SELECT run_id, dtype FROM runs) USING (run_id) "
            "WHERE error IS NULL AND new_tokens > 0"
        )
    return rows, shapes


def test_every_stage_of_every_seeded_shape_is_exact(seeds: Any) -> None:
    """By arithmetic as it is now, so a changed constant is found; the history has torch's counts.

    So are the bytes of the lower bound: the FLOPs that it needs over them.
    """
    rows, shapes = seeds
    recorded, intensities = (
        {
            key: dict(zip(part["stage"], part[column], strict=True))
            for key, part in rows.groupby(["run_id", "backend", "shape"])
        }
        for column in ("counted", "intensity")
    )
    assert shapes["run_id"].nunique() == 34 and len(recorded) == len(shapes)
    assert (rows["gap_flops"] == 0).all()
    configs = {name: load_config(path) for name, path in (("p", PUBLISHED), ("m", EMBEDDED_CHECKPOINT))}
    models = rows.groupby("run_id")["model"].first()
    for row in shapes.itertuples():
        config = configs["p" if "published" in models[row.run_id] else "m"]
        shape = Shape(row.preset, (row.grid_columns, row.grid_rows), row.prompt_tokens, row.new_tokens)
        work, key = workload_of(config, shape), (row.run_id, row.backend, str(shape))
        analytic, least = (
            predict(config, work, each).stages for each in (Policy(), least_work(Policy(dtype=row.dtype)))
        )
        now = {stage.value: float(cost.cost.flops) for stage, cost in analytic.items()}
        assert recorded[key] == now, row
        needed = {stage.value: cost.cost.flops / cost.compulsory_bytes for stage, cost in least.items()}
        assert intensities[key] == pytest.approx(needed, rel=1e-12), row


def test_the_newest_seeded_bench_has_the_figures_of_a_calculator(seeds: Any) -> None:
    """H200: 989.5 TFLOP/s and 4,800 GB/s. Decode of 999 tokens reads 1,058,544,883,512 bytes."""
    rows, _ = seeds
    stages = rows[rows["run_id"] == "20261128-190606-4c84d7d5"].set_index("stage")
    decode = stages.loc["decode"]
    assert decode["lower_bound_ms"] == pytest.approx(1_058_544_883_512 / 4.8e9)
    assert decode["bound_by"] == "memory"
    assert decode["lost_ms"] == pytest.approx(decode["milliseconds"] - decode["lower_bound_ms"])
    assert decode["bandwidth_share"] == pytest.approx(decode["lower_bound_ms"] / decode["milliseconds"])
    sam = stages.loc["sam"]
    assert sam["lower_bound_ms"] == pytest.approx(2_211_931_226_112 / 989.5e9)
    assert sam["bound_by"] == "compute"
    together = rows[rows["no_bound"] == "pages read together share their steps"]
    assert together["run_id"].nunique() == 5 and together["lower_bound_ms"].isna().all()
