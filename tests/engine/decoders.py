"""The decoders of the engine's tests: a small model with its kernels in few programs, and those of a GPU.

Triton's interpreter runs the programs of a kernel one after another.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsocr_core.engine.fast.step import StepLaunches
from dsocr_core.kernels.launch import Launch
from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import load_config, parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import WIDE, random_model
from tests.support import paths
from tests.support.seeded_weights import tiny_config

PUBLISHED = replace(load_config(paths.PUBLISHED).decoder, layers=3)
EMBEDDED = load_config(paths.MINI).decoder
"""Three layers of the published one, and the embedded one."""
VOCABULARY = 40
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

FEW = StepLaunches(
    embed_token=Launch(2048), qkv_rotary=Launch(16), split_attention=Launch(16), splits=2,
    **{name: Launch(64) for name in (
        "attention_output", "dense_gate_up", "dense_down", "gate_up", "mixture_down", "bound_rows",
        "best_of_bounded",
    )},
)  # fmt: skip


def small_model(dtype: torch.dtype = torch.float32, window: int | None = None) -> OcrModel:
    """Make a model whose texts repeat themselves: queries and keys are half as wide as elsewhere."""
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=2, heads=2, vocab_size=VOCABULARY, window=window)
    model = random_model(replace(config, decoder=decoder), DEVICE, dtype, seed=2)
    for name, weight in model.named_parameters():
        if name.endswith(WIDE):
            weight.mul_(0.5)
    return model


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
