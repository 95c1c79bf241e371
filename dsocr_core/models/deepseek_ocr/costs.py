"""Costs of vision, block by block."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model import vision
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost
from analytic_model.workload import Workload
from dsocr_core.models.deepseek_ocr import DeepseekOcrConfig


def costs(config: DeepseekOcrConfig, workload: Workload, policy: Policy) -> tuple[StageCost, ...]:
    """Count the vision stages in their order, and fusion."""
    return (
        vision.sam(config.sam, workload, policy),
        vision.clip(config.clip, workload, policy),
        vision.projector(config.projector, workload, policy, joined=True),
        vision.vision_fusion(config, workload, policy),
    )


def parameters(config: DeepseekOcrConfig) -> Mapping[str, int]:
    """Count the learned numbers of each part."""
    projector = config.projector
    return {
        "sam": vision.sam_parameters(config.sam),
        "clip": vision.clip_parameters(config.clip),
        "projector": vision.linear_parameters(projector.input_dim, projector.output_dim),
    }
