"""The fast engine's prefill: the prompt through the language model in few launches.

Letters: B pages of one length, N tokens of each, C hidden size, L layers, h heads, P positions of the cache,
D head dim, V vocabulary.

The shared experts' products run beside the routed ones, which are bound by reading weights. The last layer
needs keys and values of all tokens; the rest of it runs for the last token alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.fast.graphs import CapturedPasses, Recorder, SideStream
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.weights import LayerWeights, pack
from dsocr_core.models.blocks.attention import AttentionCore, Rotary, sdpa_core
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.ocr_model import OcrModel, Tokens
from dsocr_core.page.prompt import PromptIds

MOST_LENGTHS = 24
"""Most captured prompt lengths: Gundam has 17 grids of one to nine tiles, other presets a few."""

MOST_TOKENS = 4096
"""Most tokens of a captured pass; longer prompts are launched. The buffer has 0.25 GB as published."""

_ROWS_AN_EXPERT = (20, 40, 80)
"""Rows an expert that stand for each tile of `grouped_launches`, but the one for very short prompts."""

_Key = tuple[int, int, AttentionCore]
"""(tokens of a page, pages, attention) of a captured pass."""


def _flash_core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in place of `sdpa_core`, whose cuDNN takes a tenth of a second for each new prompt length."""
    out: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=q.shape[2] > 1)[0]
    return out


class FastPrefill:
    """Prefill of prompts through a model's decoder."""

    def __init__(self, model: OcrModel, ops: Ops | None = None) -> None:
        self._config, self._model = model.config.decoder, model
        self.device, self.dtype = model.device, model.dtype
        self.ops = ops or Ops(model.device.type == "cuda")
        self._weights = pack(model.decoder)
        self._side = SideStream(model.device)

    def embed(self, prompt: PromptIds, images: Sequence[Tokens]) -> Tensor:
        """Embeddings of a prompt with vision tokens at the image positions, (N, C). Raises ValueError."""
        model = self._model
        vision = torch.cat([model.sequence(*image) for image in images])  # (V, C)
        positions = sum(length for _, length in prompt.mask)
        if vision.shape[0] != positions:
            raise ValueError(f"{vision.shape[0]} vision tokens for {positions} image positions")
        ids = torch.tensor(prompt.ids)
        if model.device.type == "cuda":
            ids = ids.pin_memory()  # pinned: otherwise the copy would wait for the device
        x = F.embedding(ids.to(model.device, non_blocking=True), self._weights.embedding)  # (N, C)
        taken = 0
        for start, length in prompt.mask:
            x[start : start + length] = vision[taken : taken + length]
            taken += length
        return x

    def forward(
        self,
        embeddings: Tensor,
        keys: Tensor,
        values: Tensor,
        rotary: Rotary,
        core: AttentionCore,
        pages: int = 1,
    ) -> Tensor:
        """Logits after each page, (V,) for one, else (B, V). Writes `keys` and `values` (L, h, P, D)."""
        with torch.autocast(embeddings.device.type, enabled=False):
            return self._forward(embeddings.clone(), keys, values, rotary, core, pages)

    def _forward(
        self, x: Tensor, keys: Tensor, values: Tensor, rotary: Rotary, core: AttentionCore, pages: int
    ) -> Tensor:
        config, ops, eps = self._config, self.ops, self._config.rms_norm_eps
        if core is sdpa_core and self.device.type == "cuda" and self.dtype.itemsize == 2:
            core = _flash_core
        total, tokens = x.shape[0], x.shape[0] // pages
        cos, sin = rotary.cos, rotary.sin
        if pages > 1:
            cos, sin = (table[:tokens].repeat(pages, 1) for table in (cos, sin))
        layers = self._weights.layers
        _, y = ops.add_norm(x, layers[0].attention_norm, eps)
        following = [layer.attention_norm for layer in layers[1:]] + [self._weights.norm]
        for number, (layer, norm) in enumerate(zip(layers, following, strict=True)):
            qkv = F.linear(y, layer.qkv).view(total, -1, config.head_dim)
            q = ops.rotate_and_cache(qkv, cos, sin, keys[number], values[number], 0)  # (B N, h, D)
            q = q.view(pages, tokens, *q.shape[1:])
            if number == len(layers) - 1:
                q, x = q[:, -1:], x.view(pages, tokens, -1)[:, -1].contiguous()
            k, v = (
                half[number, :, :total].view(-1, pages, tokens, config.head_dim).transpose(0, 1)
                for half in (keys, values)
            )  # (B, h, N, D)
            mixed = core(q.transpose(1, 2), k, v).transpose(1, 2).reshape(x.shape[0], -1)
            x, y = ops.add_norm(x, layer.norm, eps, F.linear(mixed, layer.o))
            (routed, weights), shared = self._side.overlap(
                partial(self._routed, y, layer), partial(self._shared, y, layer)
            )
            x, y = ops.add_norm(x, norm, eps, shared, routed, weights)
        logits = F.linear(y, self._weights.head).to(torch.float32)
        return logits[0] if pages == 1 else logits

    def run_experts(self) -> None:
        """Run the experts of a layer over few and over many tokens, so that both kernels are compiled."""
        config, layer = self._config, self._weights.layers[-1]
        if layer.experts is None:
            return
        for rows in _ROWS_AN_EXPERT:
            tokens = rows * len(layer.experts.gate) // config.experts_per_token
            self._routed(torch.zeros(tokens, config.hidden_size, dtype=self.dtype, device=self.device), layer)

    def _shared(self, y: Tensor, layer: LayerWeights) -> Tensor:
        return F.linear(self.ops.gated(F.linear(y, layer.gate_up)), layer.down)

    def _routed(self, y: Tensor, layer: LayerWeights) -> tuple[Tensor | None, Tensor | None]:
        if layer.experts is None:
            return None, None
        config = self._config
        return self.ops.experts(y, layer, config.experts_per_token, config.routed_scaling_factor)


class PromptGraphs:
    """CUDA graphs of `FastPrefill.forward` for lengths that come again, with buffers of keys and values."""

    def __init__(self, prefill: FastPrefill, config: DecoderConfig, recorder: Recorder | None) -> None:
        self._prefill, self._recorder, self._config = prefill, recorder, config
        self._keys, self._values = self._halves(MOST_TOKENS if recorder else 0)
        self.passes = CapturedPasses[_Key, _Recorded](MOST_LENGTHS)

    def forward(
        self, embeddings: Tensor, keys: Tensor, values: Tensor, rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        """As `FastPrefill.forward` of one page (N, C). Logits (V,) float32, valid until the next call."""
        tokens = embeddings.shape[0]
        if tokens > MOST_TOKENS or (found := self._recorded(embeddings, rotary, core, 1)) is None:
            return self._prefill.forward(embeddings, keys, values, rotary, core)
        logits = found.forward(embeddings)
        self.copy_out(keys, values, tokens)
        return logits

    def forward_pages(self, embeddings: Tensor, pages: int, rotary: Rotary, core: AttentionCore) -> Tensor:
        """Logits (B, V) of pages (B N, C). They and `copy_out` are valid until the next call."""
        if self._recorder is None and len(embeddings) > self._keys.shape[2]:
            self._keys, self._values = self._halves(len(embeddings))
        found = self._recorded(embeddings, rotary, core, pages)
        return self.run(embeddings, rotary, core, pages) if found is None else found.forward(embeddings)

    def run(self, embeddings: Tensor, rotary: Rotary, core: AttentionCore, pages: int) -> Tensor:
        """Run the pass with the graphs' own buffers of keys and values."""
        return self._prefill.forward(embeddings, self._keys, self._values, rotary, core, pages)

    def copy_out(self, keys: Tensor, values: Tensor, tokens: int, page: int = 0) -> None:
        """Copy keys and values of a page's `tokens` positions to tensors (L, h, P, D)."""
        own = slice(page * tokens, (page + 1) * tokens)
        keys[:, :, :tokens] = self._keys[:, :, own]
        values[:, :, :tokens] = self._values[:, :, own]

    def _halves(self, positions: int) -> tuple[Tensor, Tensor]:
        config = self._config
        shape = (config.layers, config.heads, positions, config.head_dim)
        keys, values = (
            torch.zeros(shape, dtype=self._prefill.dtype, device=self._prefill.device) for _ in "kv"
        )
        return keys, values

    def _recorded(
        self, embeddings: Tensor, rotary: Rotary, core: AttentionCore, pages: int
    ) -> _Recorded | None:
        """Captured pass for pages of this length; None while there is none."""
        if self._recorder is None:
            return None
        key, recorder = (embeddings.shape[0] // pages, pages, core), self._recorder
        return self.passes.get(key, lambda: _Recorded(self, recorder, embeddings, rotary, core, pages))


class _Recorded:
    """Captured pass of one length."""

    def __init__(
        self,
        owner: PromptGraphs,
        recorder: Recorder,
        embeddings: Tensor,
        rotary: Rotary,
        core: AttentionCore,
        pages: int,
    ) -> None:
        self._embeddings = embeddings.clone()
        tokens = embeddings.shape[0] // pages
        own = copy.copy(rotary)
        own.cos, own.sin = rotary.cos[:tokens].clone(), rotary.sin[:tokens].clone()
        self._logits = torch.empty(0)

        def run() -> None:
            self._logits = owner.run(self._embeddings, own, core, pages)

        self._rotary = own
        self._replay: Callable[[], None] = recorder.recorded(run)

    def forward(self, embeddings: Tensor) -> Tensor:
        self._embeddings.copy_(embeddings)
        self._replay()
        return self._logits
