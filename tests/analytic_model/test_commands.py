"""`dsocr flops report` and `sweep`: tables, JSON, targets and sweeps by hand, every error by its field."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from analytic_model import PUBLISHED
from analytic_model.hardware import HARDWARE
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.requirements import requirements, sentence
from analytic_model.roofline import bound
from analytic_model.sweep import ENGINES, Axis, Quantity, near_square, spread, sweep, tiled
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import FIRST
from tests.support.paths import ROOT

MINI = ROOT / "data" / "mini" / "config.json"
PAGE = ["flops", "report", "--config", str(MINI), "--width", "1300", "--height", "1300"]
SIX_TILES = Workload((640,) * 6 + (1024,), (2, 3), decode_tokens=101)
A4 = Workload.from_image(1654, 2339, decode_tokens=20)
H200 = HARDWARE["h200"]


def report(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*PAGE, *options, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_json_report_has_workload_and_stages(capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--prompt-tokens", "12", "--decode-tokens", "40", "--preset", "gundam")
    assert document["workload"]["views"] == [640, 640, 640, 640, 1024]
    assert document["workload"]["sequence_length"] == 705
    stages = {row["stage"]: row for row in document["stages"]}
    inner = ["sam", "clip", "projector", "vision_fusion", "prefill"]
    assert list(stages) == [*inner, "prefill with vision", "decode", "everything", "one token"]
    assert list(document["operators"]) == [*inner, "decode"]
    for name, operators in document["operators"].items():
        assert stages[name]["flops"] == sum(operator["flops"] for operator in operators)
    assert stages["everything"]["parameters"] == document["parameters"]["total"]
    assert document["kv_cache_bytes"] == 744 * 2 * 6 * 320 * 2 and document["not_counted"]


def test_options_reach_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    def flops(stage: str, *options: str) -> float:
        return next(row["flops"] for row in report(capsys, *options)["stages"] if row["stage"] == stage)

    every = ("--lm-head", "all", "--causal", "halved")
    assert flops("prefill", *every) != flops("prefill") and flops("sam") == flops("sam", "--batch", "2") / 2
    assert report(capsys, *every)["policy"]["lm_head"] == "all"
    flash = ("--attention", "flash_attention_2")
    assert flops("prefill", *flash) < flops("prefill", *flash, "--count-unsupported") == flops("prefill")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--width", "0"], "width is 0"), (["--height", "-5"], "height is -5"),
        (["--preset", "huge"], "unknown preset 'huge'"), (["--prompt-tokens", "0"], "--prompt-tokens is 0"),
        (["--decode-tokens", "-1"], "--decode-tokens is -1"), (["--batch", "0"], "batch is 0"),
        (["--hardware", "abacus"], "unknown hardware 'abacus'"),
        (["--hardware", "gh200"], "bfloat16 peak of GH200 96 GB is not known"),
        (["--ttft", "0"], "--ttft is 0: give a number > 0"),
        (["--ttft", "5", "--tpot", "1"], "give one target"),
        (["--hardware", "h200-measured", "--dtype", "float32"], "float32 peak"),
        (["--config", "/nowhere/config.json"], "/nowhere/config.json"),
    ],
)  # fmt: skip
def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], options: list[str], problem: str) -> None:
    assert main([*PAGE, *options]) == 2
    out, err = capsys.readouterr()
    assert "error: " in out + err and problem in out + err


# --- targets --------------------------------------------------------------------------------------


def test_fifty_milliseconds_to_the_first_token_of_six_tiles(published: ModelConfig) -> None:
    """Vision's FLOPs are what torch counted on the published code: 3,468,866,060,288."""
    needed = requirements(published, SIX_TILES, "ttft", 50)
    needs, devices = needed.needs.set_index("stage"), needed.devices.set_index("hardware")
    vision = needs.loc[[stage.value for stage in FIRST.computed[:-2]], "flops"].sum()
    assert vision == 3_468_866_060_288
    rate = needs.loc["everything", "flops_per_s"]
    assert rate == pytest.approx((vision + needs.loc["prefill", "flops"]) / 0.05)
    assert rate / 1e12 == pytest.approx(85.3, abs=0.05)
    h200 = devices.loc[H200.name]
    assert h200["peak_share"] == pytest.approx(85.3 / 989.5, rel=1e-3)
    parts = [cost for stage, cost in predict(published, SIX_TILES).stages.items() if stage != "decode"]
    assert 1e3 * h200["least_s"] == pytest.approx(
        sum(bound(cost, H200, "bfloat16").time_ms for cost in parts)
    )
    assert h200["share"] == pytest.approx(h200["least_s"] / 0.05)


def test_a_token_of_a_batch_reads_the_weights_once(published: ModelConfig) -> None:
    one = requirements(published, SIX_TILES, "tpot", 1.0)
    many = requirements(published, replace(SIX_TILES, batch=64), "tpot", 1.0)
    (token, all_of_one), all_of_many = (row for _, row in one.needs.iterrows()), many.needs.iloc[-1]
    assert token["stage"] == "decode" and all_of_one["bytes_per_s"] == all_of_one["bytes"] / 1e-3
    assert all_of_many["flops"] == 64 * all_of_one["flops"]
    assert all_of_many["bytes"] < 10 * all_of_one["bytes"]
    able = one.devices.loc[one.devices["reaches"], "hardware"].tolist()
    assert {"GeForce RTX 5090", "A100 80GB SXM"} <= set(able) and "L4" not in able
    assert f"; {able[-1]} reaches it at " in sentence(SIX_TILES, one)  # the one with the least to spare
    none = requirements(published, SIX_TILES, "tpot", 0.001)
    assert sentence(SIX_TILES, none).endswith("; no device of the list reaches it")


def test_a_target_is_answered_in_a_sentence_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["flops", "report", "--config", str(PUBLISHED), "--ttft", "50"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("50.0 ms to the first token at 2 x 3 tiles: 85.3 TFLOP/s and ")
    assert max(map(len, text.splitlines())) <= 110
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    *stages, everything = document["stages"]
    assert everything["flops"] == sum(stage["flops"] for stage in stages)
    assert document["devices"][0]["hardware"] == "B200" and document["devices"][0]["reaches"] is True


# --- sweeps ---------------------------------------------------------------------------------------


def swept(config: ModelConfig, axis: Axis, quantity: Quantity, value: int) -> list[dict[str, Any]]:
    return sweep(config, A4, axis, [value], quantity, ENGINES, H200)


@pytest.mark.parametrize("quantity", ["flops", "bytes", "activations", "time"])
def test_a_point_is_the_prediction_of_its_workload(published: ModelConfig, quantity: Quantity) -> None:
    row, _ = swept(published, "tiles", quantity, 6)
    work = replace(SIX_TILES, decode_tokens=20)
    assert (row["tile_columns"], row["tile_rows"], row["image_tokens"]) == (2, 3, work.image_tokens)
    for stage, cost in predict(published, work, Policy(attention="eager")).stages.items():
        assert row[stage.value] == {
            "flops": cost.cost.flops, "bytes": cost.cost.bytes_moved,
            "activations": cost.cost.activation_bytes, "time": bound(cost, H200, "bfloat16").time_ms / 1e3,
        }[quantity]  # fmt: skip


def test_grids_are_as_square_as_their_tiles_allow_and_a_range_gives_each_number_once() -> None:
    grids = [near_square(count) for count in (1, 2, 6, 7, 12, 16)]
    assert grids == [(1, 1), (1, 2), (2, 3), (1, 7), (3, 4), (4, 4)]
    assert tiled(A4, (1, 1)).views == (1024,) and tiled(A4, (2, 3)) == A4
    assert spread(1, 4, 10) == (1, 2, 3, 4) and spread(0, 100, 5) == (0, 25, 50, 75, 100)
    for first, last, points in ((5, 4, 3), (-1, 4, 3), (1, 4, 0), (1, 4, 10**6), (1, 10**9, 3)):
        with pytest.raises(DsocrError):
            spread(first, last, points)


SWEEP = ["flops", "sweep", "--config", str(MINI)]


def test_the_command_prints_one_row_a_point(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--axis", "decode", "--quantity", "bytes", "--from", "10", "--to", "30", "--points", "3"]
    assert main([*SWEEP, *words, "--engine", "flash"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["decode_tokens"], row["engine"], row["unit"]) for row in rows] == [
        (tokens, "flash", "B") for tokens in ("10", "20", "30")
    ]
    stages = ("sam", "clip", "projector", "vision_fusion", "prefill", "decode")
    assert all(int(row["total"]) == sum(int(row[stage]) for stage in stages) > 0 for row in rows)
