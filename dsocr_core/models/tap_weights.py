"""Published weights that act at each tap of a stage, part by part; `{}` is the block's number."""

from __future__ import annotations

from collections.abc import Mapping

Parts = Mapping[str, tuple[str, ...]]
"""Part of a tap's name -> prefixes of weights' names."""


def _under(module: str, parts: Mapping[str, str]) -> Parts:
    return {name: (module + prefix,) for name, prefix in parts.items()}


SAM = _under("model.sam_model.", {
    "patch": "patch_embed.", "embeddings": "pos_embed", "neck": "neck.", "out": "net_",
    "norm1": "blocks.{}.norm1.", "qkv": "blocks.{}.attn.qkv.", "mixed": "blocks.{}.attn.rel_pos",
    "attn": "blocks.{}.attn.proj.", "norm2": "blocks.{}.norm2.", "mlp": "blocks.{}.mlp.",
})  # fmt: skip
_CLIP = "transformer.layers.{}."
CLIP = _under("model.vision_model.", {
    "embeddings": "embeddings.", "pre_norm": "pre_layrnorm.", "norm1": _CLIP + "layer_norm1.",
    "qkv": _CLIP + "self_attn.qkv_proj.", "attn": _CLIP + "self_attn.out_proj.",
    "norm2": _CLIP + "layer_norm2.", "fc1": _CLIP + "mlp.fc1.", "fc2": _CLIP + "mlp.fc2.",
})  # fmt: skip
_QWEN2 = "model.model.layers.{}."
ENCODER = _under("model.qwen2_model.", {
    "embeddings": "query_", "norm1": _QWEN2 + "input_layernorm.", "q": _QWEN2 + "self_attn.q_proj.",
    "k": _QWEN2 + "self_attn.k_proj.", "v": _QWEN2 + "self_attn.v_proj.",
    "attn": _QWEN2 + "self_attn.o_proj.", "norm2": _QWEN2 + "post_attention_layernorm.",
    "gate": _QWEN2 + "mlp.gate_proj.", "up": _QWEN2 + "mlp.up_proj.", "down": _QWEN2 + "mlp.down_proj.",
    "norm": "model.model.norm.",
})  # fmt: skip
PROJECTOR = _under("model.projector.", {"": ""})
_LAYERS = _under("model.layers.{}.", {
    "norm1": "input_layernorm.", "q": "self_attn.q_proj.", "k": "self_attn.k_proj.",
    "v": "self_attn.v_proj.", "attn": "self_attn.o_proj.", "norm2": "post_attention_layernorm.",
    "gate": "mlp.gate_proj.", "up": "mlp.up_proj.", "down": "mlp.down_proj.",
    "router.ids": "mlp.gate.", "router.weights": "mlp.gate.", "experts": "mlp.experts.",
    "shared.gate": "mlp.shared_experts.gate_proj.", "shared.up": "mlp.shared_experts.up_proj.",
    "shared.down": "mlp.shared_experts.down_proj.",
})  # fmt: skip
DECODER: Mapping[str, Parts] = {
    "embeddings": {"": ("model.embed_tokens.", "model.image_newline", "model.view_seperator")},
    "decoder": _LAYERS,
    "logits": {"norm": ("model.norm.",), "": ("lm_head.",)},
}
"""Weights that every model has behind its vision."""
