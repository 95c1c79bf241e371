"""Modules, costs and taps of the made-up model."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from analytic_model import ops, vision
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost, Tally
from analytic_model.workload import Workload
from dsocr_core.models.blocks.taps import fusion_taps, sam_taps
from dsocr_core.models.ocr_model import OcrModel, Part
from dsocr_core.models.resolution import tokens_per_side
from dsocr_core.models.taps.hooks import Tap
from tests.support.made_up_member import MIXER, MadeUpConfig


class Linear(nn.Module):
    """A linear layer under the name that a projector's has."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class MadeUp(OcrModel):
    """SAM, a linear layer with GELU, the projector."""

    config: MadeUpConfig

    def add_vision(self) -> None:
        sizes = self.config
        self.mixer = Linear(sizes.sam.downsample_channels[1], sizes.mixer)
        self.projector = Linear(sizes.projector.input_dim, sizes.projector.output_dim)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (
            lambda pixels: self.sam(pixels),
            lambda _, sam: F.gelu(self.mixer(sam.flatten(2).transpose(1, 2))),
            lambda *outputs: self.projector(outputs[-1]),
        )


def costs(config: MadeUpConfig, workload: Workload, policy: Policy) -> tuple[StageCost, ...]:
    """Count the vision stages, and fusion."""
    tally, size = Tally(MIXER), policy.element_bytes
    for index, (views, side) in enumerate(workload.view_groups):
        tally.holds_weights = index == 0
        rows = views * workload.batch * tokens_per_side(side) ** 2
        inner = ops.linear(rows, config.sam.downsample_channels[1], config.mixer, size)
        tally.add("mixer", "addmm", inner)
        tally.add("mixer", "gelu", ops.gelu(rows * config.mixer, size))
    return (
        vision.sam(config.sam, workload, policy),
        StageCost(MIXER, tuple(tally.operators), 0),
        vision.projector(config.projector, workload, policy),
        vision.vision_fusion(config, workload, policy),
    )


def parameters(config: MadeUpConfig) -> dict[str, int]:
    """Count each part's."""
    projector, linear = config.projector, vision.linear_parameters
    return {
        "sam": vision.sam_parameters(config.sam),
        "mixer": linear(config.sam.downsample_channels[1], config.mixer),
        "projector": linear(projector.input_dim, projector.output_dim),
    }


def taps(config: MadeUpConfig) -> tuple[Tap, ...]:
    """Tap vision."""
    return (*sam_taps(config.sam), Tap("mixer.out", "mixer"), *fusion_taps())
