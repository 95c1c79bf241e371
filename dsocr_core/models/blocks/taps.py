"""Taps of the blocks, in the order of computing; paths are those of our modules."""

from __future__ import annotations

from collections.abc import Iterator

from dsocr_core.models.config import ClipConfig, DecoderConfig, Qwen2Config, SamConfig
from dsocr_core.models.taps.hooks import Tap


def sam_taps(config: SamConfig) -> Iterator[Tap]:
    """Pixels to features."""
    yield Tap("pixels", "sam", "input", "channels first")
    yield Tap("sam.patch", "sam.patch_embed")
    yield Tap("sam.embeddings", "sam.blocks.0", "input")
    for number in range(config.layers):
        name, path = f"sam.block{number}", f"sam.blocks.{number}"
        yield Tap(f"{name}.norm1", f"{path}.norm1")
        yield Tap(f"{name}.qkv", f"{path}.attn.qkv")
        yield Tap(f"{name}.mixed", f"{path}.attn.proj", "input")
        yield Tap(f"{name}.attn", f"{path}.attn.proj")
        yield Tap(f"{name}.mid", f"{path}.norm2", "input")
        yield Tap(f"{name}.norm2", f"{path}.norm2")
        yield Tap(f"{name}.mlp", f"{path}.mlp.lin2")
        yield Tap(f"{name}.out", path)
    yield Tap("sam.neck", "sam.neck", layout="channels first")
    yield Tap("sam.out", "sam", layout="channels first")


def clip_taps(config: ClipConfig) -> Iterator[Tap]:
    """Features to patches."""
    yield Tap("clip.embeddings", "clip.embeddings")
    yield Tap("clip.pre_norm", "clip.pre_layrnorm")
    for number in range(config.layers):
        name, path = f"clip.block{number}", f"clip.transformer.layers.{number}"
        # The published block calls its attention and feed-forward by `.forward`: no hook of theirs fires.
        yield Tap(f"{name}.norm1", f"{path}.layer_norm1")
        yield Tap(f"{name}.qkv", f"{path}.self_attn.qkv_proj")
        yield Tap(f"{name}.mixed", f"{path}.self_attn.out_proj", "input")
        yield Tap(f"{name}.attn", f"{path}.self_attn.out_proj")
        yield Tap(f"{name}.mid", f"{path}.layer_norm2", "input")
        yield Tap(f"{name}.norm2", f"{path}.layer_norm2")
        yield Tap(f"{name}.fc1", f"{path}.mlp.fc1")
        yield Tap(f"{name}.act", f"{path}.mlp.fc2", "input")
        yield Tap(f"{name}.fc2", f"{path}.mlp.fc2")
        yield Tap(f"{name}.out", path)


def encoder_taps(config: Qwen2Config) -> Iterator[Tap]:
    """Features to the queries' answers."""
    yield Tap("encoder.embeddings", "encoder.layers.0", "input")
    for number in range(config.layers):
        name, path = f"encoder.block{number}", f"encoder.layers.{number}"
        yield Tap(f"{name}.norm1", f"{path}.input_layernorm")
        for part in "qkv":
            yield Tap(f"{name}.{part}", f"{path}.self_attn.{part}_proj")
        yield Tap(f"{name}.mixed", f"{path}.self_attn.o_proj", "input")
        yield Tap(f"{name}.attn", f"{path}.self_attn.o_proj")
        yield Tap(f"{name}.mid", f"{path}.post_attention_layernorm", "input")
        yield Tap(f"{name}.norm2", f"{path}.post_attention_layernorm")
        yield Tap(f"{name}.gate", f"{path}.mlp.gate_proj")
        yield Tap(f"{name}.up", f"{path}.mlp.up_proj")
        yield Tap(f"{name}.act", f"{path}.mlp.down_proj", "input")
        yield Tap(f"{name}.down", f"{path}.mlp.down_proj")
        yield Tap(f"{name}.out", path)
    yield Tap("encoder.norm", "encoder.norm")


def fusion_taps() -> Iterator[Tap]:
    """The projector, and what goes into the decoder."""
    yield Tap("projector.in", "projector.layers", "input")
    yield Tap("projector", "projector.layers")
    yield Tap("embeddings", "decoder.layers.0", "input", "rows")


def decoder_taps(config: DecoderConfig) -> Iterator[Tap]:
    """Embeddings to logits."""
    for number in range(config.layers):
        name, path = f"decoder.layer{number}", f"decoder.layers.{number}"
        yield _rows(f"{name}.norm1", f"{path}.input_layernorm")
        for part in "qkv":
            yield _rows(f"{name}.{part}", f"{path}.self_attn.{part}_proj")
        yield Tap(f"{name}.keys", f"{path}.self_attn", "keys")
        yield Tap(f"{name}.mixed", f"{path}.self_attn.o_proj", "input", "rows")
        yield _rows(f"{name}.attn", f"{path}.self_attn.o_proj")
        yield Tap(f"{name}.mid", f"{path}.post_attention_layernorm", "input", "rows")
        yield _rows(f"{name}.norm2", f"{path}.post_attention_layernorm")
        if config.is_dense(number):
            yield from _feed_forward(name, f"{path}.mlp")
        else:
            # One tap of three names: `router.ids`, `router.weights`, `experts`.
            yield Tap(name, f"{path}.mlp", "mixture")
            yield from _feed_forward(f"{name}.shared", f"{path}.mlp.shared_experts")
        yield _rows(f"{name}.mlp", f"{path}.mlp")
        yield _rows(f"{name}.out", path)
    yield Tap("norm", "decoder.norm", layout="last row")
    yield Tap("logits", "decoder.lm_head", layout="last row")


def _rows(name: str, path: str) -> Tap:
    return Tap(name, path, layout="rows")


def _feed_forward(name: str, path: str) -> Iterator[Tap]:
    yield _rows(f"{name}.gate", f"{path}.gate_proj")
    yield _rows(f"{name}.up", f"{path}.up_proj")
    yield Tap(f"{name}.act", f"{path}.down_proj", "input", "rows")
    yield _rows(f"{name}.down", f"{path}.down_proj")
