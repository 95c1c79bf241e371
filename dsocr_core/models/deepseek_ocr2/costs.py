"""Costs of vision, block by block."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model import ops, vision
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost, Tally
from analytic_model.workload import Workload
from dsocr_core.models.config import Qwen2Config
from dsocr_core.models.deepseek_ocr2 import ENCODER_STAGE, DeepseekOcr2Config
from dsocr_core.models.resolution import tokens_per_side


def costs(config: DeepseekOcr2Config, workload: Workload, policy: Policy) -> tuple[StageCost, ...]:
    """Count the vision stages in their order, and fusion."""
    return (
        vision.sam(config.sam, workload, policy),
        encoder(config.encoder, workload, policy),
        vision.projector(config.projector, workload, policy),
        vision.vision_fusion(config, workload, policy),
    )


def encoder(config: Qwen2Config, workload: Workload, policy: Policy) -> StageCost:
    """Count features -> the queries' answers, for every view; the mask saves nothing."""
    tally, boundary = Tally(ENCODER_STAGE), 0
    for index, (views, side) in enumerate(workload.view_groups):
        tally.holds_weights = index == 0
        count = tokens_per_side(side) ** 2
        _encoder_pass(tally, config, views * workload.batch, count, policy)
        boundary += views * workload.batch * 2 * count * config.width
    return StageCost(ENCODER_STAGE, tuple(tally.operators), boundary * policy.element_bytes)


def _encoder_pass(tally: Tally, config: Qwen2Config, views: int, count: int, policy: Policy) -> None:
    size, width, layers = policy.element_bytes, config.width, config.layers
    narrow, tokens = config.kv_heads * config.head_dim, 2 * count
    rows = views * tokens
    held = count * width if tally.holds_weights else 0
    queries = ops.Cost(bytes_read=count * width * size, weight_bytes=count * width * size, parameters=held)
    tally.add("encoder.queries", "cat", queries + ops.copy(rows * width, size))
    norm = ops.rms_norm(rows, width, size)
    tally.add("encoder.layers.norm", "rms_norm", norm, 2 * layers)
    for name, out in (("q_proj", width), ("k_proj", narrow), ("v_proj", narrow)):
        tally.add(f"encoder.layers.attn.{name}", "addmm", ops.linear(rows, width, out, size), layers)
    for heads in (config.heads, config.kv_heads):
        turned = ops.rotary(rows, tokens, heads, config.head_dim, size)
        tally.add("encoder.layers.attn.rotary", "rotary", turned, layers)
    tally.add("encoder.layers.attn.repeat", "copy", ops.copy(rows * width, size), 2 * layers)
    core = ops.attention(config.heads, config.head_dim, rows, rows, rows * tokens, size)
    tally.add_fused_attention("encoder.layers.attn.core", core, policy, layers)
    tally.add("encoder.layers.attn.o_proj", "mm", ops.linear(rows, width, width, size, bias=False), layers)
    for name in ("gate_proj", "up_proj"):
        inner = ops.linear(rows, width, config.mlp_width, size, bias=False)
        tally.add(f"encoder.layers.mlp.{name}", "mm", inner, layers)
    tally.add("encoder.layers.mlp.act", "silu_mul", ops.silu_mul(rows * config.mlp_width, size), layers)
    outer = ops.linear(rows, config.mlp_width, width, size, bias=False)
    tally.add("encoder.layers.mlp.down_proj", "mm", outer, layers)
    tally.add("encoder.layers.residual", "add", ops.add(rows * width, size), 2 * layers)
    tally.add("encoder.norm", "rms_norm", norm)


def parameters(config: DeepseekOcr2Config) -> Mapping[str, int]:
    """Count the learned numbers of each part."""
    encoder, linear = config.encoder, vision.linear_parameters
    width, narrow = encoder.width, encoder.kv_heads * encoder.head_dim
    layer = linear(width, width) + 2 * linear(width, narrow) + width * width
    layer += 3 * width * encoder.mlp_width + 2 * width
    return {
        "sam": vision.sam_parameters(config.sam),
        "encoder": encoder.layers * layer + width + sum(encoder.queries) * width,
        "projector": linear(config.projector.input_dim, config.projector.output_dim),
    }
