"""The decoders that the GPU tests run at: three layers of the published one, and the embedded one."""

from dataclasses import replace

import torch

from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.config import DecoderConfig

PUBLISHED = DecoderConfig(
    vocab_size=129280,
    hidden_size=1280,
    layers=3,
    heads=10,
    intermediate_size=6848,
    moe_intermediate_size=896,
    routed_experts=64,
    experts_per_token=6,
    shared_experts=2,
    first_dense_layers=1,
    max_positions=8192,
    bos_token_id=0,
    eos_token_id=1,
)
EMBEDDED = replace(
    PUBLISHED, vocab_size=1408, hidden_size=320, layers=6, heads=5, intermediate_size=896,
    moe_intermediate_size=224, routed_experts=8, experts_per_token=2,
)  # fmt: skip


def random_decoder(config: DecoderConfig, device: torch.device) -> Decoder:
    """Make a bf16 decoder of random weights scaled by fan-in."""
    with torch.device("meta"):
        decoder = Decoder(config).to(torch.bfloat16)
    decoder.to_empty(device=device).requires_grad_(False)
    generator = torch.Generator(device).manual_seed(0)
    for parameter in decoder.parameters():
        parameter.normal_(generator=generator)
        if parameter.ndim > 1:
            parameter.mul_(parameter.shape[-1] ** -0.5)
        else:
            parameter.mul_(0.05).add_(1.0)
    return decoder
