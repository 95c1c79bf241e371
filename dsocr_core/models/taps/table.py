"""Taps of the models, a row each in the order of computing: names, modules, layouts, weights.

`embeddings` is the input of a tower's or the decoder's first block; `mixed` is attention's sum of values
before its output projection, `act` the activations before the second product of a feed-forward. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

At = Literal["output", "input", "keys", "queries", "mixture"]
"""Place of a tap: a module's output or first input, an attention's rotated keys or queries, or a mixture's
ids, weights or outputs."""
Layout = Literal["as is", "channels first", "rows", "last row"]
"""Form of a stored tensor: `channels first` (B, C, H, W) as (B, H, W, C), `rows` (1, N, C) as (N, C), `last
row` of (1, N, C) as (1, C)."""


@dataclass(frozen=True)
class Tap:
    """A tensor's name and place. `{}` stands for the block's number."""

    name: str
    module: str
    """Path of our module."""
    at: At = "output"
    layout: Layout = "as is"
    weights: tuple[str, ...] | None = None
    """Prefixes (ours) of the weights that act between the tap before and this one. None: the module's weights
    for a module's output, no weights for other taps."""
    only: Literal["dense", "mixture"] | None = None
    """Decoder layers that have the tap."""

    @property
    def acting(self) -> tuple[str, ...]:
        """`weights` with None resolved."""
        if self.weights is not None:
            return self.weights
        return (f"{self.module}.",) if self.at == "output" else ()


@dataclass(frozen=True)
class StageTaps:
    """Taps of a stage: before its blocks, in each of them, after them."""

    name: str
    """Attribute of the config with the stage's sizes."""
    first: tuple[Tap, ...]
    block: tuple[Tap, ...] = ()
    last: tuple[Tap, ...] = ()

    def of(self, config: Any) -> Iterator[Tap]:
        """Taps for a model of these sizes."""
        sizes = getattr(config, self.name)
        yield from self.first
        for number in range(sizes.layers if self.block else 0):
            for tap in self.block:
                if tap.only is None or (tap.only == "dense") == sizes.is_dense(number):
                    yield replace(tap, name=tap.name.format(number), module=tap.module.format(number))
        yield from self.last


def _block(name: str, module: str, *rows: Tap) -> tuple[Tap, ...]:
    """Taps of a block; names, modules and weights are relative to it."""
    return tuple(
        replace(
            row,
            name=f"{name}.{row.name}",
            module=f"{module}.{row.module}".removesuffix("."),
            weights=row.weights and tuple(f"{module}.{weight}" for weight in row.weights),
        )
        for row in rows
    )


SAM = StageTaps(
    "sam",
    (
        Tap("pixels", "sam", "input", "channels first"),
        Tap("sam.patch", "sam.patch_embed"),
        Tap("sam.embeddings", "sam.blocks.0", "input", weights=("sam.pos_embed",)),
    ),
    _block(
        "sam.block{}",
        "sam.blocks.{}",
        Tap("norm1", "norm1"),
        Tap("qkv", "attn.qkv"),
        Tap("mixed", "attn.proj", "input", weights=("attn.rel_pos",)),
        Tap("attn", "attn.proj"),
        Tap("mid", "norm2", "input"),
        Tap("norm2", "norm2"),
        Tap("mlp", "mlp.lin2", weights=("mlp.",)),
        Tap("out", "", weights=()),
    ),
    (
        Tap("sam.neck", "sam.neck", layout="channels first"),
        Tap("sam.out", "sam", layout="channels first", weights=("sam.net_",)),
    ),
)

# The published block of CLIP calls `.forward` of its parts, so their hooks do not fire.
CLIP = StageTaps(
    "clip",
    (Tap("clip.embeddings", "clip.embeddings"), Tap("clip.pre_norm", "clip.pre_layrnorm")),
    _block(
        "clip.block{}",
        "clip.transformer.layers.{}",
        Tap("norm1", "layer_norm1"),
        Tap("qkv", "self_attn.qkv_proj"),
        Tap("mixed", "self_attn.out_proj", "input"),
        Tap("attn", "self_attn.out_proj"),
        Tap("mid", "layer_norm2", "input"),
        Tap("norm2", "layer_norm2"),
        Tap("fc1", "mlp.fc1"),
        Tap("act", "mlp.fc2", "input"),
        Tap("fc2", "mlp.fc2"),
        Tap("out", "", weights=()),
    ),
)

_QKV = tuple(Tap(part, f"self_attn.{part}_proj") for part in "qkv")
_GATED = (
    Tap("gate", "mlp.gate_proj"),
    Tap("up", "mlp.up_proj"),
    Tap("act", "mlp.down_proj", "input"),
    Tap("down", "mlp.down_proj"),
)
_AFTER_ATTENTION = (
    Tap("mixed", "self_attn.o_proj", "input"),
    Tap("attn", "self_attn.o_proj"),
    Tap("mid", "post_attention_layernorm", "input"),
    Tap("norm2", "post_attention_layernorm"),
)

ENCODER = StageTaps(
    "encoder",
    (Tap("encoder.embeddings", "encoder.layers.0", "input", weights=("encoder.query_",)),),
    _block(
        "encoder.block{}",
        "encoder.layers.{}",
        Tap("norm1", "input_layernorm"),
        *_QKV,
        *_AFTER_ATTENTION,
        *_GATED,
        Tap("out", "", weights=()),
    ),
    (Tap("encoder.norm", "encoder.norm"),),
)

PROJECTOR = StageTaps(
    "projector", (Tap("projector.in", "projector.layers", "input"), Tap("projector", "projector.layers"))
)

_MIXTURE = (
    Tap("router.ids", "mlp", "mixture", weights=("mlp.gate.",)),
    Tap("router.weights", "mlp", "mixture", weights=("mlp.gate.",)),
    Tap("experts", "mlp", "mixture", weights=("mlp.experts.",)),
)
_SHARED = tuple(
    replace(tap, name=f"shared.{tap.name}", module=tap.module.replace("mlp.", "mlp.shared_experts."))
    for tap in _GATED
)
_LAYER = (
    Tap("norm1", "input_layernorm"),
    *_QKV,
    Tap("queries", "self_attn", "queries"),
    Tap("keys", "self_attn", "keys"),
    *_AFTER_ATTENTION,
    *(replace(tap, only="dense") for tap in _GATED),
    *(replace(tap, only="mixture") for tap in (*_MIXTURE, *_SHARED)),
    Tap("mlp", "mlp", weights=()),
    Tap("out", "", weights=()),
)
_EMBEDDED = ("decoder.embed_tokens.", "image_newline", "view_seperator")

DECODER = StageTaps(
    "decoder",
    (Tap("embeddings", "decoder.layers.0", "input", "rows", weights=_EMBEDDED),),
    _block("decoder.layer{}", "decoder.layers.{}", *(replace(tap, layout="rows") for tap in _LAYER)),
    (Tap("norm", "decoder.norm", layout="last row"), Tap("logits", "decoder.lm_head", layout="last row")),
)
"""Taps that every model has after its vision."""
