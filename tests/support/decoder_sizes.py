"""The decoders that the GPU tests run at: three layers of the published one, and the embedded one."""

from dataclasses import replace

import torch

from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import load_config
from tests.support import paths

PUBLISHED = replace(load_config(paths.PUBLISHED).decoder, layers=3)
EMBEDDED = load_config(paths.MINI).decoder


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
