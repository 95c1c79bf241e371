"""The language model, and the best two of its logits. B batch, N tokens, C hidden, V vocabulary."""

import torch
from torch import Tensor, nn

from dsocr_core.models.blocks.attention import AttentionCore, DecoderAttention, Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.layers import RmsNorm, SwiGlu
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.config import DecoderConfig


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.whole_head = False
        """True runs the head at every position, as published. A trace does so, to compare bits."""

    def forward(
        self, embeddings: Tensor, cache: KvCache, rotary: Rotary, core: AttentionCore, count: int = 1
    ) -> Tensor:
        """Append N positions to the cache. Logits of the last `count`: (B, N, C) -> (B, count, V) float32"""
        x = embeddings
        for layer in self.layers:
            x = layer(x, cache, rotary, core)  # (B, N, C)
        cache.advance(x.shape[1])
        # Only the last positions are used. A product with other rows may round differently.
        logits = self.lm_head(self.norm(x if self.whole_head else x[:, -count:]))  # (B, N or count, V)
        return logits[:, -count:].to(torch.float32)


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each after a norm and added to its input. (B, N, C) -> (B, N, C)"""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = DecoderAttention(config, layer)
        self.mlp: nn.Module = (
            SwiGlu(config.hidden_size, config.intermediate_size)
            if config.is_dense(layer)
            else MixtureOfExperts(config)
        )
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, cache: KvCache, rotary: Rotary, core: AttentionCore) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache, rotary, core)
        return x + self.mlp(self.post_attention_layernorm(x))


class BestTwo:
    """Recorder of each step's two best logits, which stay on the device until they are read."""

    def __init__(self) -> None:
        self._ids, self._logits = list[Tensor](), list[Tensor]()

    def add(self, logits: Tensor, chosen: Tensor) -> None:
        """Add a step: logits (V,) with banned tokens at -inf, and the chosen token, ()."""
        place = chosen[None]  # (1,)
        rest = logits.scatter(0, place, float("-inf")).max(dim=0, keepdim=True)
        self._ids += [place, rest.indices]
        self._logits += [logits.gather(0, place), rest.values]

    def pairs(self) -> tuple[list[int], list[float]]:
        """Ids and logits of every step, two of each, copied to the host."""
        ids, logits = (torch.cat(rows).tolist() if rows else [] for rows in (self._ids, self._logits))
        return ids, logits
