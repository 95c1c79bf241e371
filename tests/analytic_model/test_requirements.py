"""What a target takes: rates and devices against what a calculator gives."""

import json
from dataclasses import replace

import pytest

from analytic_model.hardware import HARDWARE
from analytic_model.predict import predict
from analytic_model.requirements import TargetError, requirements
from analytic_model.roofline import prefill_ms
from analytic_model.workload import Workload
from dsocr_core.cli.main import main
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import FIRST
from dsocr_core.models.stages import Stage
from tests.support.paths import ROOT

PAGE = Workload((640,) * 6 + (1024,), (2, 3), decode_tokens=101)
PUBLISHED = ROOT / "analytic_model" / "published.json"


def test_fifty_milliseconds_to_the_first_token_of_six_tiles(published: ModelConfig) -> None:
    """Vision's FLOPs are what torch counted on the published code: 3,468,866,060,288."""
    needed = requirements(published, PAGE, "ttft", 50)
    vision = sum(needed.stages[stage].flops for stage in FIRST.computed[:-2])
    assert vision == 3_468_866_060_288
    assert needed.total.flops_per_s == pytest.approx((vision + needed.stages[Stage.PREFILL].flops) / 0.05)
    assert needed.total.flops_per_s / 1e12 == pytest.approx(85.3, abs=0.05)
    h200 = next(reach for reach in needed.devices if reach.key == "h200")
    assert h200.peak_share == pytest.approx(85.3 / 989.5, rel=1e-3)
    assert h200.least_ms == pytest.approx(prefill_ms(predict(published, PAGE), HARDWARE["h200"]))
    assert h200.share == pytest.approx(h200.least_ms / 50)


def test_a_token_of_a_batch_reads_the_weights_once(published: ModelConfig) -> None:
    one = requirements(published, PAGE, "tpot", 1.0)
    many = requirements(published, replace(PAGE, batch=64), "tpot", 1.0)
    assert list(one.stages) == [Stage.DECODE]
    assert many.total.flops == 64 * one.total.flops
    assert many.total.bytes < 10 * one.total.bytes
    assert one.total.bytes_per_s == one.total.bytes / 1e-3


def test_the_device_named_is_the_one_with_the_least_to_spare(published: ModelConfig) -> None:
    needed = requirements(published, PAGE, "tpot", 1.0)
    able = [reach.key for reach in needed.devices if reach.possible]
    assert {"rtx-5090", "a100"} <= set(able) and "l4" not in able
    assert needed.first_possible is not None and needed.first_possible.key == able[-1]
    assert requirements(published, PAGE, "tpot", 0.001).first_possible is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_target_is_a_positive_number(published: ModelConfig, value: float) -> None:
    with pytest.raises(TargetError):
        requirements(published, PAGE, "ttft", value)


def test_the_command_answers_in_a_sentence_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert main([*words[:-1], "-3"]) == 2
    assert "--ttft is -3: give a number above 0" in capsys.readouterr().out
