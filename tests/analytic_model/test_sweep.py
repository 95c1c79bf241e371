"""Sweeps: values worked out by hand, and what holds at every point."""

import csv
import io
from dataclasses import replace

import pytest

from analytic_model import ops
from analytic_model.hardware import HARDWARE
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.roofline import bound
from analytic_model.sweep import (
    ENGINES,
    Axis,
    Point,
    Quantity,
    SweepError,
    near_square,
    spread,
    sweep,
    tiled,
)
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.stages import Stage
from tests.support.paths import ROOT

PAGE = Workload.from_image(1654, 2339, decode_tokens=20)
H200 = HARDWARE["h200"]
VALUES: dict[Axis, tuple[int, ...]] = {
    "tiles": (2, 3, 4, 6, 9, 30, 200),
    "decode": (1, 2, 7, 100),
    "prompt": (1, 10, 1_000),
    "batch": (1, 2, 3, 64),
    "context": (1, 2, 900, 8_000),
}


def swept(config: ModelConfig, axis: Axis, quantity: Quantity, *values: int) -> dict[str, list[Point]]:
    points = sweep(config, PAGE, axis, values or VALUES[axis], quantity, ENGINES, H200)
    return {engine: [point for point in points if point.engine == engine] for engine in ENGINES}


def test_flops_of_one_new_token_are_those_worked_out_by_hand(published: ModelConfig) -> None:
    width, context = 1280, 900
    attention = 12 * (4 * 2 * width**2 + 4 * (context + 1) * width)
    dense = 3 * 2 * width * 6848
    mixture = 11 * (2 * width * 64 + 6 * 3 * 2 * width * 896 + 3 * 2 * width * 2 * 896)
    by_hand = attention + dense + mixture + 2 * width * 129280
    for points in swept(published, "context", "flops", context).values():
        assert [point.total for point in points] == [by_hand]
        assert list(points[0].stages) == [Stage.DECODE]


def test_a_point_is_the_prediction_of_its_workload(published: ModelConfig) -> None:
    for quantity in ("flops", "bytes", "activations", "time"):
        (point,) = swept(published, "tiles", quantity, 6)["eager"]
        work = Workload((640,) * 6 + (1024,), (2, 3), decode_tokens=20)
        assert point.workload == work
        predicted = predict(published, work, Policy(attention="eager")).stages
        for stage, cost in predicted.items():
            assert (
                point.stages[stage]
                == {
                    "flops": cost.cost.flops,
                    "bytes": cost.cost.bytes_read + cost.cost.bytes_written,
                    "activations": cost.cost.activation_bytes,
                    "time": bound(cost, H200, "bfloat16").time_ms / 1e3,
                }[quantity]
            )


@pytest.mark.parametrize("axis", list(VALUES))
def test_eager_and_flash_differ_by_the_scores_that_attention_writes(
    published: ModelConfig, axis: Axis
) -> None:
    """FLOPs are the same; eager's bytes are flash's and those of its scores: written, scaled, summed up."""
    flops, moved = swept(published, axis, "flops"), swept(published, axis, "bytes")
    assert [point.stages for point in flops["eager"]] == [point.stages for point in flops["flash"]]
    for eager, flash in zip(moved["eager"], moved["flash"], strict=True):
        gaps = {stage: eager.stages[stage] - flash.stages[stage] for stage in eager.stages}
        assert all(gap == 0 for stage, gap in gaps.items() if stage not in (Stage.PREFILL, Stage.DECODE))
        assert gaps.get(Stage.PREFILL, 0) == _prefill_scores(published, eager.workload) * (axis != "context")
        assert gaps[Stage.DECODE] == _decode_scores(published, eager)


def _prefill_scores(config: ModelConfig, work: Workload) -> int:
    """Products write and read the scores, scale and softmax do both, the mask too and reads itself."""
    length, heads, size = work.sequence_length, config.decoder.heads, 2
    scores = work.batch * heads * length**2 * size
    mask = length**2 * size
    return config.decoder.layers * (8 * scores + mask)


def _decode_scores(config: ModelConfig, point: Point) -> int:
    steps = point.workload.decode_steps
    positions = sum(point.context + step for step in range(1, steps + 1))
    scores = point.workload.batch * config.decoder.heads * positions * 2
    return config.decoder.layers * 6 * scores


def test_grids_are_as_square_as_their_tiles_allow() -> None:
    assert [near_square(count) for count in (1, 2, 6, 7, 12, 16)] == [
        (1, 1), (1, 2), (2, 3), (1, 7), (3, 4), (4, 4),
    ]  # fmt: skip
    assert tiled(PAGE, (1, 1)).views == (1024,)
    assert tiled(PAGE, (2, 3)) == PAGE


def test_a_range_gives_each_number_once() -> None:
    assert spread(1, 4, 10) == (1, 2, 3, 4)
    assert spread(0, 100, 5) == (0, 25, 50, 75, 100)
    assert spread(7, 9, 1) == (7,)
    for first, last, points in ((5, 4, 3), (-1, 4, 3), (1, 4, 0), (1, 4, 10**6), (1, 10**9, 3)):
        with pytest.raises(SweepError):
            spread(first, last, points)


def test_a_thousand_points_take_no_more_than_a_few_thousand_predictions(
    published: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a sweep is that of its predictions: no operator is counted per token or position."""
    counted = 0
    linear = ops.linear

    def counting(*arguments: object, **more: object) -> ops.Cost:
        nonlocal counted
        counted += 1
        return linear(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ops, "linear", counting)
    sweep(
        published, replace(PAGE, decode_tokens=4000), "prompt", spread(1, 5000, 20), "flops", ["eager"], H200
    )
    assert counted <= 20 * 40


def test_the_command_prints_one_row_a_point(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "flops", "sweep", "--config", str(ROOT / "data" / "mini"), "--axis", "decode", "--quantity",
        "bytes",
    ]  # fmt: skip
    assert main([*words, "--from", "10", "--to", "30", "--points", "3", "--engine", "flash"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["decode"] != "0", row["engine"]) for row in rows] == [(True, "flash")] * 3
    assert [row["decode_tokens"] for row in rows] == ["10", "20", "30"]
    assert {row["unit"] for row in rows} == {"B"}
    assert [int(row["total"]) for row in rows] == [
        sum(int(row[stage]) for stage in ("sam", "clip", "projector", "vision_fusion", "prefill", "decode"))
        for row in rows
    ]


@pytest.mark.parametrize(
    "options", [["--from", "0", "--axis", "batch"], ["--from", "9", "--to", "8"], ["--hardware", "abacus"]]
)
def test_what_cannot_be_swept_is_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "flops", "sweep", "--config", str(ROOT / "data" / "mini"), "--axis", "tiles", "--quantity", "time",
    ]  # fmt: skip
    assert main([*words, *options]) == 2
    assert capsys.readouterr().out.startswith("error: ")


def test_a_device_without_a_figure_for_the_dtype_is_refused(embedded: ModelConfig) -> None:
    with pytest.raises(DsocrError, match="float32"):
        sweep(
            embedded, PAGE, "tiles", [2], "time", ["eager"], HARDWARE["h200-measured"],
            Policy(dtype="float32"),
        )  # fmt: skip


def test_the_least_time_is_the_longer_of_computing_and_moving(embedded: ModelConfig) -> None:
    times = {
        quantity: sweep(embedded, PAGE, "batch", [1, 64], quantity, ["flash"], H200)
        for quantity in ("time", "compute", "memory")
    }
    for least, compute, memory in zip(*times.values(), strict=True):
        for stage, seconds in least.stages.items():
            assert seconds == max(compute.stages[stage], memory.stages[stage])
