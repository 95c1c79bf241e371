"""Faults planted into the eager engine, and where a trace must find them.

Each is a context manager that changes one thing of one block while a page is read, and puts it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
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


def weight(path: str, *at: int, by: float = 0.5) -> Callable[[OcrModel], AbstractContextManager[None]]:
    """One number of one weight moved by `by`."""

    @contextmanager
    def plant(model: OcrModel) -> Iterator[None]:
        tensor = model.get_parameter(path)
        before = tensor[at].clone()
        tensor[at] += by
        try:
            yield
        finally:
            tensor[at] = before

    return plant


def forward(path: str, changed: Callable[..., Tensor]) -> Callable[[OcrModel], AbstractContextManager[None]]:
    """Another `forward` of one module: `changed(module, its own forward, *arguments)`."""

    def plant(model: OcrModel) -> AbstractContextManager[None]:
        module = model.get_submodule(path)
        own = module.forward
        return patch.object(module, "forward", lambda *arguments: changed(module, own, *arguments))

    return plant


def rounded_gelu(module: Any, _own: Any, x: Tensor) -> Tensor:
    """CLIP's feed-forward with its GELU rounded at every step."""
    y = module.fc1(x)
    out: Tensor = module.fc2(y * torch.sigmoid(1.702 * y))
    return out


def unrounded_gelu(module: Any, _own: Any, x: Tensor) -> Tensor:
    """The same in float32, rounded once."""
    y = module.fc1(x).float()
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

    def other(picture: Image.Image, size: Any, *_: Any, **__: Any) -> Image.Image:
        return resize(picture, size, Image.Resampling.BILINEAR)

    return patch.object(Image.Image, "resize", other)


def expert(layer: int, tie: bool) -> Callable[[OcrModel], AbstractContextManager[None]]:
    """The runner-up instead of the last chosen expert, for the token where that decides least, or most."""

    def plant(model: OcrModel) -> AbstractContextManager[None]:
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

    return plant


def _sam_mask(module: Any, own: Any, x: Tensor) -> Tensor:
    """Windows one row of patches off."""
    out: Tensor = own(x.roll(1, dims=1)).roll(-1, dims=1)
    return out


CLIP, SAM = "clip.transformer.layers", "sam.blocks"
DECODER = "decoder.layers"

FAULTS = (
    # One number of one weight.
    Fault("SAM patch weight", "sam.patch", "weights", weight("sam.patch_embed.proj.weight", 3, 0, 1, 1)),
    Fault("projector weight", "projector", "weights", weight("projector.layers.weight", 11, 12)),
    Fault("decoder first q", "decoder.layer0", "weights",
          weight(f"{DECODER}.0.self_attn.q_proj.weight", 1, 2)),
    Fault("head", "logits", "weights", weight("decoder.lm_head.weight", 400, 3)),
    # Mask and positions.
    Fault("SAM windows off by one", "sam.block0", "mask_or_positions", forward(f"{SAM}.0.attn", _sam_mask)),
    Fault("decoder first mask", "decoder.layer0", "mask_or_positions",
          forward(f"{DECODER}.0.self_attn", mask_sees_one_more)),
    # Interpolation.
    Fault("page", "pixels", "resize", _bilinear_page),
    Fault("CLIP positions", "clip.embeddings", "resize",
          lambda _: patch.object(clip, "resize_position_grid", _bilinear)),
    # Experts.
    Fault("first mixture at a tie", "decoder.layer1", "router_tie", expert(1, tie=True)),
    Fault("last mixture without a tie", "decoder.layer5", "other_operation", expert(5, tie=False)),
)  # fmt: skip

GELUS = (
    Fault("CLIP GELU rounded", "clip.block0", "rounding", forward(f"{CLIP}.0.mlp", rounded_gelu)),
    Fault("CLIP GELU unrounded", "clip.block0", "rounding", forward(f"{CLIP}.0.mlp", unrounded_gelu)),
)
