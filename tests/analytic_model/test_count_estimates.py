"""Older sweeps' points under torch's counter: the published sizes and the embedded ones, to the last FLOP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytic_model.count_estimates import count
from analytic_model.earlier_estimates import Estimate, EstimateError, explain, explain_count
from analytic_model.measure import Meter
from dsocr_core.config import ModelConfig, load_config
from dsocr_core.errors import Cancelled
from dsocr_core.settings import EMBEDDED_CHECKPOINT

GRIDS = ((2, 1), (3, 1), (2, 2), (5, 1), (3, 2), (7, 1), (4, 2), (3, 3))
"""All grids, columns x rows, at which the sample sweep has torch's count of the published code."""
PROMPTS = (493, 593, 703, 793, 903, 993, 1103, 1213)
PARTS = ("vision", "prefill", "decode")


def points(grids: int) -> list[Estimate]:
    return [
        Estimate(part, grid, 1, 0 if part == "vision" else prompt, 0 if part == "vision" else 100, 0)  # type: ignore[arg-type]
        for part in PARTS
        for grid, prompt in list(zip(GRIDS, PROMPTS, strict=True))[:grids]
    ]


@pytest.fixture(scope="module")
def embedded() -> Meter:
    return Meter(load_config(EMBEDDED_CHECKPOINT))


def test_torch_counts_what_the_model_says_of_the_embedded_sizes(embedded: Meter) -> None:
    for point in points(2):
        assert count(embedded, point) == explain(embedded.config, point).exact, point


def test_steps_between_the_first_and_the_last_are_on_a_line(embedded: Meter) -> None:
    point = Estimate("decode", (2, 1), 1, 493, 7, 0)
    assert (
        count(embedded, point) == count(embedded, point, every=True) == explain(embedded.config, point).exact
    )
    assert count(embedded, replace(point, steps=0)) == 0
    with pytest.raises(EstimateError, match="context is 400"):
        count(embedded, replace(point, context=400))


def test_a_batch_counts_each_of_its_pages(embedded: Meter) -> None:
    for point in points(1):
        of_three = replace(point, batch=3)
        assert count(embedded, of_three) == explain(embedded.config, of_three).exact, point.part


def test_a_count_can_be_ended_between_stages(embedded: Meter) -> None:
    def stop(stage: object) -> None:
        raise Cancelled

    for point in points(1):
        with pytest.raises(Cancelled):
            count(embedded, point, stop)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["published", "embedded"])
def test_every_point_of_the_sample_with_torchs_count(sizes: str, published: ModelConfig) -> None:
    """Some two minutes: 24 points, every one of the 100 decoded tokens."""
    meter = Meter(published if sizes == "published" else load_config(EMBEDDED_CHECKPOINT))
    for point in points(len(GRIDS)):
        assert count(meter, point, every=True) == explain(meter.config, point).exact, point


def test_torch_counted_the_same_in_the_published_code_but_for_rotary_angles(published: ModelConfig) -> None:
    """The sample's own figure at 2 x 1 tiles, held against our core under the same counter."""
    meter, there = Meter(published), 1_916_266_708_992
    vision = Estimate("vision", (2, 1), 1, 0, 0, 0, None, there)
    assert count(meter, vision) == there
    decode = Estimate("decode", (2, 1), 1, 493, 100, 0, None, 118_158_489_600)
    (rotary, rest) = explain_count(published, decode)
    assert count(meter, decode) + rotary.flops == 118_158_489_600 and rest.flops == 0
