"""Sweeps: values worked out by hand, and what holds at every point."""

import csv
import io
from typing import Any

import pytest

from analytic_model.hardware import HARDWARE
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.roofline import bound
from analytic_model.sweep import (
    ENGINES,
    Axis,
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
from tests.support.paths import ROOT

PAGE = Workload.from_image(1654, 2339, decode_tokens=20)
H200 = HARDWARE["h200"]


def swept(config: ModelConfig, axis: Axis, quantity: Quantity, *values: int) -> dict[str, list[Any]]:
    rows = sweep(config, PAGE, axis, values, quantity, ENGINES, H200)
    return {engine: [row for row in rows if row["engine"] == engine] for engine in ENGINES}


def test_flops_of_one_new_token_are_those_worked_out_by_hand(published: ModelConfig) -> None:
    width, context = 1280, 900
    attention = 12 * (4 * 2 * width**2 + 4 * (context + 1) * width)
    dense = 3 * 2 * width * 6848
    mixture = 11 * (2 * width * 64 + 6 * 3 * 2 * width * 896 + 3 * 2 * width * 2 * 896)
    by_hand = attention + dense + mixture + 2 * width * 129280
    for rows in swept(published, "context", "flops", context).values():
        assert [(row["total"], row["decode"], row.get("prefill")) for row in rows] == [
            (by_hand, by_hand, None)
        ]


def test_a_point_is_the_prediction_of_its_workload(published: ModelConfig) -> None:
    for quantity in ("flops", "bytes", "activations", "time"):
        (row,) = swept(published, "tiles", quantity, 6)["eager"]
        work = Workload((640,) * 6 + (1024,), (2, 3), decode_tokens=20)
        assert (row["tile_columns"], row["tile_rows"], row["image_tokens"]) == (2, 3, work.image_tokens)
        predicted = predict(published, work, Policy(attention="eager")).stages
        for stage, cost in predicted.items():
            assert (
                row[stage.value]
                == {
                    "flops": cost.cost.flops,
                    "bytes": cost.cost.bytes_read + cost.cost.bytes_written,
                    "activations": cost.cost.activation_bytes,
                    "time": bound(cost, H200, "bfloat16").time_ms / 1e3,
                }[quantity]
            )


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
