"""Fewer bits for a decoder's weights and cache: the rungs of the precision ladder.

Weights are rounded to what a rung would store and held in the model's own type: its values, not its speed.
That is done to every projection; norms, router, embedding, head and vision stay as they are. A cache's 8 bits
are real, in the batch (`kernels.batch.scales`).

Letters: M outputs, K inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dsocr_core.base.specs.kinds import Precision
from dsocr_core.models.config import DecoderConfig

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""Largest number of e4m3."""
GROUP = 64
"""Inputs that share a scale of int8 and int4."""

CACHES: Mapping[str, tuple[bool, bool]] = {"fp8-v": (False, True), "fp8-kv": (True, True)}
"""By rung, for keys and for values: in 8 bits."""


def as_fp8(values: Tensor) -> Tensor:
    """Round to the nearest 8-bit floats, at most the largest."""
    return values.float().clamp(-LARGEST, LARGEST).to(FP8)


def fp8_channels(weight: Tensor) -> Tensor:
    """Values of (..., M, K) in 8-bit floats with a float32 scale for each output."""
    scale = weight.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / LARGEST
    return as_fp8(weight.float() / scale).float() * scale


def int_groups(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Values of (..., M, K) in symmetric integers with a bf16 scale for each `group` inputs of an output."""
    inputs, most = weight.shape[-1], 2 ** (bits - 1) - 1
    padded = nn.functional.pad(weight.float(), (0, -inputs % group))
    padded = padded.view(*weight.shape[:-1], -1, group)
    scale = (padded.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / most).to(torch.bfloat16).float()
    values: Tensor = (padded / scale).round().clamp(-most, most) * scale
    return values.flatten(-2)[..., :inputs]


def weight_bits(name: str, parameter: Tensor, precision: Precision) -> float:
    """Count the bits of a number of a decoder's parameter, its share of a scale included."""
    own = 8.0 * parameter.element_size()
    if precision in CACHES or precision == "off" or "_proj" not in name:
        return own
    if precision == "fp8-experts" and ".experts." not in name:
        return own
    if precision.startswith("fp8"):
        return 8 + 32 / parameter.shape[-1]
    return int(precision.removeprefix("int")) + 16 / GROUP


@torch.no_grad()
def round_weights(decoder: nn.Module, precision: Precision) -> None:
    """Give the decoder's weights the values that they have in that precision."""
    for name, parameter in decoder.named_parameters():
        if weight_bits(name, parameter, precision) == 8 * parameter.element_size():
            continue
        # One expert after another: a float copy of all would be larger than the model.
        for matrix in parameter.view(-1, *parameter.shape[-2:]):
            fp8 = precision.startswith("fp8")
            matrix.copy_(fp8_channels(matrix) if fp8 else int_groups(matrix, int(precision[3:])))


def decoder_bytes(decoder: nn.Module, precision: Precision, experts: tuple[int, int] | None = None) -> int:
    """Count the bytes of a decoder's weights; with `experts` (chosen, all) what one token reads of them."""
    total = 0.0
    for name, parameter in decoder.named_parameters():
        size = parameter.numel() * weight_bits(name, parameter, precision) / 8
        if experts is not None and ".experts." in name:
            size *= experts[0] / experts[1]
        elif experts is not None and "embed_tokens" in name:
            size /= len(parameter)
        total += size
    return round(total)


def position_bytes(config: DecoderConfig, dtype: torch.dtype, precision: Precision) -> int:
    """Count the bytes of a position's keys and values in all layers."""
    halves = (1 if eight else dtype.itemsize for eight in CACHES.get(precision, (False, False)))
    return config.layers * config.heads * config.head_dim * sum(halves)
