"""A decoder of two layers, one of them a mixture, and its kernels in few programs.

The interpreter runs the programs of a kernel one after another.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsocr_core.engine.fast.step import StepLaunches
from dsocr_core.kernels.launch import Launch
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

VOCABULARY = 40
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

FEW = StepLaunches(
    embed_token=Launch(2048), qkv_rotary=Launch(16), split_attention=Launch(16), splits=2,
    **{name: Launch(64) for name in (
        "attention_output", "dense_gate_up", "dense_down", "gate_up", "mixture_down", "bound_rows",
        "best_of_bounded",
    )},
)  # fmt: skip


def small_model(dtype: torch.dtype = torch.float32) -> OcrModel:
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=2, heads=2, vocab_size=VOCABULARY)
    return random_model(replace(config, decoder=decoder), DEVICE, dtype, seed=2)
