"""The estimates of an older project's sweeps beside the exact model: by how much they differ, and why.

Its formulas are not here. What is here is each difference of assumption, worked out from the sizes of the
model and the grid, so that the causes of a point add up to its gap to the last FLOP. What they do not
explain is a cause of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from analytic_model.decoder import decode, prefill
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost
from analytic_model.vision import clip, projector, sam
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.errors import DsocrError
from dsocr_core.inputs.tiling import Grid
from dsocr_core.resolution import PRESETS, TILE_SIZE, tokens_per_side

BASE_SIDE = PRESETS["gundam"].base_size

Part = Literal["vision", "prefill", "decode"]
PARTS: tuple[Part, ...] = get_args(Part)
"""What a point estimates: vision; vision and prefill; all decode steps."""

OTHER_FLOPS = "norms and activations counted"
NOT_EXPLAINED = "not explained"
ROTARY = "rotary angles by a product"
COUNTED_AS = Policy(attention="eager", lm_head="all")
"""The published code, which torch's counter watched there: eager attention, logits of all positions."""


class EstimateError(DsocrError, ValueError):
    """A point that is no workload; names the field."""


@dataclass(frozen=True)
class Estimate:
    """A point of an older sweep. FLOPs are whole numbers, None where the sweep does not have them."""

    part: Part
    grid: Grid
    """Tiles as (columns, rows)."""
    batch: int
    context: int
    """Positions of the prompt, the image's span included."""
    steps: int
    """Decoded tokens after prefill."""
    flops: int
    other_flops: int | None = None
    """Part of `flops`: norms, softmax and activations, which torch's counter does not see."""
    counted_flops: int | None = None
    """What torch's counter found in the published code."""


@dataclass(frozen=True)
class Cause:
    name: str
    why: str
    flops: int
    """By how much it makes the estimate too high; below 0 too low."""


@dataclass(frozen=True)
class Explained:
    """A point beside the exact model."""

    estimate: Estimate
    exact: int
    causes: tuple[Cause, ...]
    """Their sum is the gap; the last is what the others leave."""

    @property
    def gap(self) -> int:
        return self.estimate.flops - self.exact

    @property
    def unexplained(self) -> int:
        return self.causes[-1].flops

    @property
    def counted_gap(self) -> int | None:
        """What torch counted in the published code over the exact model; None where it did not run."""
        counted = self.estimate.counted_flops
        return None if counted is None else counted - self.exact


def explain(config: ModelConfig, estimate: Estimate) -> Explained:
    """The exact FLOPs of a point's work, and the causes of its gap. Raises DsocrError."""
    work = workload_of(estimate)
    exact = sum(stage.cost.flops for stage in _stages(config, estimate, work))
    causes: list[Cause] = []
    if estimate.part != "decode":
        causes += _vision_causes(config, work)
    if estimate.part != "vision":
        causes += _decoder_causes(config, estimate, work)
    if estimate.other_flops is not None:
        why = "torch's counter and the exact model count products and convolutions only"
        causes.append(Cause(OTHER_FLOPS, why, estimate.other_flops))
    rest = estimate.flops - exact - sum(cause.flops for cause in causes)
    causes.append(Cause(NOT_EXPLAINED, "what the causes above leave", rest))
    return Explained(estimate, exact, tuple(causes))


def explain_count(config: ModelConfig, estimate: Estimate) -> tuple[Cause, ...]:
    """Why torch's count of the published code is not the exact model's; their sum is `counted_gap`.

    Empty where the counter did not run.
    """
    gap = explain(config, estimate).counted_gap
    if gap is None:
        return ()
    a_position = config.decoder.layers * config.decoder.head_dim
    positions = {"vision": 0, "prefill": estimate.context, "decode": estimate.steps}[estimate.part]
    rotary = estimate.batch * positions * a_position
    return (
        Cause(ROTARY, "transformers multiplies frequencies and positions; here they are scaled", rotary),
        Cause(NOT_EXPLAINED, "what the cause above leaves", gap - rotary),
    )


def workload_of(estimate: Estimate) -> Workload:
    """The page of a point. Raises DsocrError where its prompt is shorter than its image's span."""
    columns, rows = estimate.grid
    tiles = columns * rows if columns * rows > 1 else 0
    page = Workload((TILE_SIZE,) * tiles + (BASE_SIDE,), estimate.grid, batch=estimate.batch)
    text = estimate.context - page.image_tokens
    if estimate.part == "vision":
        return page
    if text < 1:
        raise EstimateError(
            f"context is {estimate.context}; {columns} x {rows} tiles have {page.image_tokens} image tokens"
        )
    return Workload(page.views, page.grid, text, estimate.steps + 1, estimate.batch)


def _stages(config: ModelConfig, estimate: Estimate, work: Workload) -> list[StageCost]:
    if estimate.part == "decode":
        return [decode(config, estimate.context, estimate.steps, COUNTED_AS, work.batch)]
    stages = [stage(config, work, COUNTED_AS) for stage in (sam, clip, projector)]
    if estimate.part == "prefill":
        stages.append(prefill(config, work, COUNTED_AS))
    return stages


def _vision_causes(config: ModelConfig, work: Workload) -> list[Cause]:
    width_in, width = config.projector.input_dim, config.projector.output_dim
    one_layer = 2 * width_in * width
    two_layers = one_layer + 2 * width * width
    side = tokens_per_side(BASE_SIDE)
    tiles = work.tile_count
    columns, rows = work.grid
    of_tile = tokens_per_side(TILE_SIZE)
    crops = (columns * of_tile + 1) * rows * of_tile if tiles else 0
    spans = crops + side * (side + 1)
    biases = sum(
        operator.cost.flops
        for operator in sam(config, work, COUNTED_AS).operators
        if operator.module.endswith(".rel_pos") and operator.operator == "bmm"
    )
    repeated = max(tiles - 1, 0) * crops
    return [
        Cause(
            "projector of two layers",
            f"a second layer of {width} x {width} after the one of {width_in} x {width}",
            work.batch * work.vision_tokens * (two_layers - one_layer),
        ),
        Cause(
            "row ends through the projector",
            "the learned newline of each row goes into the prompt without it",
            work.batch * (spans - work.vision_tokens) * two_layers,
        ),
        Cause(
            "all tiles' tokens, once for each tile",
            f"{tiles} times the {crops:,} tokens of all tiles through the projector",
            work.batch * repeated * two_layers,
        ),
        Cause(
            "SAM's relative positions",
            f"an eighth of the products of {config.sam.heads} heads: 3 FLOPs a multiply-add of one head",
            3 * biases // (2 * config.sam.heads) - biases,
        ),
    ]


def _decoder_causes(config: ModelConfig, estimate: Estimate, work: Workload) -> list[Cause]:
    decoder = config.decoder
    width, inner = decoder.hidden_size, decoder.moe_intermediate_size
    active = decoder.experts_per_token * inner + decoder.shared_width
    mixture = 2 * width * decoder.routed_experts + 3 * 2 * width * active
    dense = 3 * 2 * width * decoder.intermediate_size
    layers = min(decoder.first_dense_layers, decoder.layers)
    positions = estimate.steps if estimate.part == "decode" else estimate.context
    causes = [
        Cause(
            "experts in every layer",
            f"{layers} of {decoder.layers} layers is dense: {dense:,} FLOPs a token, not {mixture:,}",
            estimate.batch * positions * layers * (mixture - dense),
        )
    ]
    if estimate.part == "decode":
        a_position = 4 * decoder.layers * width
        causes.append(
            Cause(
                "a decoded token does not attend to itself",
                "one position fewer in each step's context",
                -estimate.batch * estimate.steps * a_position,
            )
        )
    return causes
