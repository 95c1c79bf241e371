"""Faults planted into the eager engine, and where a trace must find them.

Each is a context manager that changes one thing of one block while a page is read, and puts it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import dsocr_core.models.blocks.clip as clip
from dsocr_core.models.blocks.layers import resize_position_grid
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.trace_records import CauseKind


@dataclass(frozen=True)
class Fault:
    name: str
    block: str
    """That the first difference must be in."""
    kind: CauseKind
    plant: Callable[[OcrModel], AbstractContextManager[None]]


@contextmanager
def weight(path: str, at: tuple[int, ...], model: OcrModel) -> Iterator[None]:
    """One number of one weight moved by a half."""
    tensor = model.get_parameter(path)
    before = tensor[at].clone()
    tensor[at] += 0.5
    try:
        yield
    finally:
        tensor[at] = before


def forward(path: str, changed: Callable[..., Tensor], model: OcrModel) -> AbstractContextManager[None]:
    """Another `forward` of one module: `changed(module, its own forward, *arguments)`."""
    module = model.get_submodule(path)
    return patch.object(module, "forward", partial(changed, module, module.forward))


def gelu_in(dtype: torch.dtype, module: Any, _own: Any, x: Tensor) -> Tensor:
    """CLIP's feed-forward with its GELU rounded at every step, or in float32 and rounded once."""
    y = module.fc1(x).to(dtype)
    out: Tensor = module.fc2(y * torch.sigmoid(1.702 * y))
    return out


def mask_sees_one_more(_module: Any, own: Any, x: Tensor, cache: Any, rotary: Any, core: Any) -> Tensor:
    def faulty(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        core(q, k, v)
        new, total = q.shape[2], k.shape[2]
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        hidden = torch.ones(new, total, dtype=torch.bool).triu(total - new + 2)
        scores = scores.masked_fill(hidden, torch.finfo(q.dtype).min)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return weights @ v

    out: Tensor = own(x, cache, rotary, faulty)
    return out


def _bilinear(table: Tensor, side: int) -> Tensor:
    if table.shape[0] == side:
        return resize_position_grid(table, side)
    image = table.permute(2, 0, 1).unsqueeze(0).float()
    image = F.interpolate(image, size=(side, side), mode="bilinear", align_corners=False)
    return image.to(table.dtype).squeeze(0).permute(1, 2, 0)


def _bilinear_page(_model: OcrModel) -> AbstractContextManager[None]:
    resize = Image.Image.resize
    bilinear = Image.Resampling.BILINEAR
    return patch.object(
        Image.Image, "resize", lambda picture, size, *_, **__: resize(picture, size, bilinear)
    )


def expert(layer: int, tie: bool, model: OcrModel) -> AbstractContextManager[None]:
    """The runner-up instead of the last chosen expert, for the token where that decides least, or most."""
    mixture: Any = model.get_submodule(f"decoder.layers.{layer}.mlp")
    own = type(mixture).route

    def route(tokens: Tensor) -> tuple[Tensor, Tensor]:
        ids, weights = own(mixture, tokens)
        if len(tokens) == 1:
            return ids, weights
        logits = F.linear(tokens.float(), mixture.gate.weight.float())
        scores = logits.softmax(dim=-1, dtype=torch.float32)  # (T, E)
        lowest, slot = weights.min(dim=1)
        best, other = scores.scatter(1, ids, -1.0).max(dim=1)  # of those not chosen
        gap = 1 - best / lowest
        token = int(gap.argmin() if tie else gap.argmax())
        ids, weights = ids.clone(), weights.clone()
        ids[token, slot[token]], weights[token, slot[token]] = other[token], best[token]
        return ids, weights

    return patch.object(mixture, "route", route)


def _sam_mask(module: Any, own: Any, x: Tensor) -> Tensor:
    """Windows one row of patches off."""
    out: Tensor = own(x.roll(1, dims=1)).roll(-1, dims=1)
    return out


CLIP, SAM = "clip.transformer.layers", "sam.blocks"
DECODER = "decoder.layers"

FAULTS = (
    # One number of one weight.
    Fault("SAM patch weight", "sam.patch", "weights",
          partial(weight, "sam.patch_embed.proj.weight", (3, 0, 1, 1))),
    Fault("projector weight", "projector", "weights", partial(weight, "projector.layers.weight", (11, 12))),
    Fault("decoder first q", "decoder.layer0", "weights",
          partial(weight, f"{DECODER}.0.self_attn.q_proj.weight", (1, 2))),
    Fault("head", "logits", "weights", partial(weight, "decoder.lm_head.weight", (400, 3))),
    # Mask and positions.
    Fault("SAM windows off by one", "sam.block0", "mask_or_positions",
          partial(forward, f"{SAM}.0.attn", _sam_mask)),
    Fault("decoder first mask", "decoder.layer0", "mask_or_positions",
          partial(forward, f"{DECODER}.0.self_attn", mask_sees_one_more)),
    # Interpolation.
    Fault("page", "pixels", "resize", _bilinear_page),
    Fault("CLIP positions", "clip.embeddings", "resize",
          lambda _: patch.object(clip, "resize_position_grid", _bilinear)),
    # Experts.
    Fault("first mixture at a tie", "decoder.layer1", "router_tie", partial(expert, 1, True)),
    Fault("last mixture without a tie", "decoder.layer5", "other_operation", partial(expert, 5, False)),
)  # fmt: skip

GELUS = tuple(
    Fault(name, "clip.block0", "rounding", partial(forward, f"{CLIP}.0.mlp", partial(gelu_in, dtype)))
    for name, dtype in (("CLIP GELU rounded", torch.bfloat16), ("CLIP GELU unrounded", torch.float32))
)
