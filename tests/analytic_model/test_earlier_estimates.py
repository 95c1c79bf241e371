"""The older project's estimates: every gap explained to the last FLOP, point by point."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from analytic_model.earlier_estimates import (
    NOT_EXPLAINED,
    OTHER_FLOPS,
    Estimate,
    EstimateError,
    explain,
    explain_count,
)
from dsocr_core.config import ModelConfig
from tests.support.paths import ROOT

SWEEP = ROOT.parent / "shared" / "data" / "llm-perf-opt" / "sweep" / "20251128-152354"
# Points of a real sweep, with torch's counter at the vendor's code: 1 x 2 and 2 x 3 tiles (rows x columns).
SMALL = (
    Estimate("vision", (2, 1), 1, 0, 0, 1_914_369_006_592, 1_329_560_576, 1_916_266_708_992),
    Estimate("prefill", (2, 1), 1, 493, 100, 2_496_869_662_208, 1_546_890_752, 2_497_258_421_760),
    Estimate("decode", (2, 1), 1, 493, 100, 118_458_419_200, 44_083_200, 118_158_489_600),
    Estimate("vision", (3, 2), 1, 0, 0, 3_489_303_923_712, 2_524_097_536, 3_468_866_060_288),
    Estimate("prefill", (3, 2), 1, 903, 100, 4_578_984_104_448, 2_922_168_832, 4_555_782_396_416),
    Estimate("decode", (3, 2), 1, 903, 100, 120_977_459_200, 44_083_200, 120_677_529_600),
)


@pytest.mark.parametrize("estimate", SMALL, ids=lambda point: f"{point.part} {point.grid}")
def test_the_causes_of_a_gap_add_up_to_it(published: ModelConfig, estimate: Estimate) -> None:
    explained = explain(published, estimate)
    assert sum(cause.flops for cause in explained.causes) == explained.gap != 0
    assert explained.unexplained == 0
    counted = explain_count(published, estimate)
    assert sum(cause.flops for cause in counted) == explained.counted_gap
    assert counted[-1].flops == 0


def test_vision_is_what_torch_counted(published: ModelConfig) -> None:
    assert [explain(published, point).exact for point in SMALL if point.part == "vision"] == [
        1_916_266_708_992, 3_468_866_060_288,
    ]  # fmt: skip


def test_causes_are_those_worked_out_by_hand(published: ModelConfig) -> None:
    causes = {cause.name: cause.flops for cause in explain(published, SMALL[4]).causes}
    two_layers = 2 * (2048 * 1280 + 1280 * 1280)
    assert causes == {
        "projector of two layers": (6 * 100 + 256) * 2 * 1280 * 1280,
        "row ends through the projector": ((31 * 20 + 256 + 16) - 856) * two_layers,
        "all tiles' tokens, once for each tile": 5 * 31 * 20 * two_layers,
        "SAM's relative positions": -(6 * 1_393_360_896 + 4_907_139_072) * 7 // 8,
        "experts in every layer": 903 * (2 * 1280 * 64 + 8 * 6 * 1280 * 896 - 6 * 1280 * 6848),
        OTHER_FLOPS: 2_922_168_832,
        NOT_EXPLAINED: 0,
    }


def test_a_gap_that_no_cause_has_is_said_to_be_so(published: ModelConfig) -> None:
    wrong = replace(SMALL[0], flops=SMALL[0].flops + 17)
    assert explain(published, wrong).unexplained == 17
    assert explain(published, replace(SMALL[0], other_flops=None)).unexplained == 1_329_560_576
    assert explain_count(published, replace(SMALL[0], counted_flops=None)) == ()


def test_batch_makes_every_cause_so_many_times_larger(published: ModelConfig) -> None:
    for point in SMALL:
        one = {cause.name: cause.flops for cause in explain(published, point).causes}
        many = {cause.name: cause.flops for cause in explain(published, replace(point, batch=3)).causes}
        for name, flops in one.items():
            if name not in (OTHER_FLOPS, NOT_EXPLAINED):
                assert many[name] == 3 * flops


def test_a_prompt_shorter_than_its_image_is_refused(published: ModelConfig) -> None:
    with pytest.raises(EstimateError, match="context is 400"):
        explain(published, replace(SMALL[1], context=400))


def sample_points() -> Iterator[Estimate]:
    files = {
        "vision": ("vision_crops/vision_sweep.json", "stage_costs", "vision"),
        "prefill": ("e2e_vision_prefill/e2e_vision_prefill_sweep.json", "prefill_stagecost", "prefill_eager"),
        "decode": ("e2e_decode/e2e_decode_sweep.json", "decode_stagecost", "decode_eager"),
    }
    for part, (name, costs, eager) in files.items():
        for point in json.loads((SWEEP / name).read_text())["points"]:
            cost, counted = point[costs][eager], point[costs].get(f"{part}_vendor")
            flops, tensor = (round(1e12 * cost[key]) for key in ("flops_tflops", "flops_tensor_tflops"))
            yield Estimate(
                part,  # type: ignore[arg-type]
                (point["width_crop_num"], point["height_crop_num"]),
                point["batch_size"],
                point.get("context_len", 0),
                point["decode_steps"],
                flops,
                flops - tensor,
                round(1e12 * counted["flops_tflops"]) if counted else None,
            )


@pytest.mark.skipif(not SWEEP.is_dir(), reason="../shared/data/llm-perf-opt is not here")
def test_every_point_of_the_sample_sweep_is_explained(published: ModelConfig) -> None:
    points = list(sample_points())
    assert len(points) == 3 * 47
    for point in points:
        assert explain(published, point).unexplained == 0, point
        assert all(cause.flops == 0 for cause in explain_count(published, point)[1:])
