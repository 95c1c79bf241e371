"""Prefill of the language model captured: a CUDA graph for each length that comes again.

With plain launches the host takes longer over a prompt than the device does, which shows where vision before
it is short. A graph's addresses are fixed, so it writes keys and values to a buffer of its own, from which
they are copied to the page's cache. Lengths repeat from page to page, as grid and prompt determine them; a
length that occurs once is not worth capturing.

Letters: N tokens, C hidden size, L layers, h heads, P positions of a cache, D head dim, V vocabulary.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from dsocr_core.engine.fast.cuda_graph import Recorder
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.config import DecoderConfig

MOST_LENGTHS = 24
"""Gundam has 17 grids of one to nine tiles, the prompt alone a few."""

MOST_TOKENS = 2048
"""Longer prompts use plain launches: the buffer is always held, 0.13 GB at published sizes."""

_Key = tuple[int, AttentionCore]


class PromptGraphs:
    """`FastPrefill.forward`, captured where there is a recorder.

    Not safe for concurrent use: hold the device's lock.
    """

    def __init__(self, prefill: FastPrefill, config: DecoderConfig, recorder: Recorder | None) -> None:
        self._prefill, self._recorder = prefill, recorder
        shape = (config.layers, config.heads, MOST_TOKENS if recorder else 0, config.head_dim)
        dtype, device = prefill.dtype, prefill.device
        self._keys, self._values = (torch.zeros(shape, dtype=dtype, device=device) for _ in "kv")
        self._seen: OrderedDict[_Key, _Recorded | None] = OrderedDict()

    def forward(
        self, embeddings: Tensor, keys: Tensor, values: Tensor, rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        """Logits (V,) float32 after (N, C), as `FastPrefill.forward`; they last until the next call."""
        tokens = embeddings.shape[0]
        if self._recorder is None or tokens > MOST_TOKENS:
            return self._prefill.forward(embeddings, keys, values, rotary, core)
        key = (tokens, core)
        if key not in self._seen:
            if len(self._seen) == MOST_LENGTHS:
                self._seen.popitem(last=False)
            self._seen[key] = None
            return self._prefill.forward(embeddings, keys, values, rotary, core)
        self._seen.move_to_end(key)
        found = self._seen[key]
        if found is None:
            found = self._seen[key] = _Recorded(self, self._recorder, embeddings, rotary, core)
        return found.forward(embeddings, keys, values)

    def run(self, embeddings: Tensor, rotary: Rotary, core: AttentionCore) -> Tensor:
        """Run what is captured: the pass, with keys and values to the graph's own buffer."""
        return self._prefill.forward(embeddings, self._keys, self._values, rotary, core)

    def copy_out(self, keys: Tensor, values: Tensor, tokens: int) -> None:
        """The first `tokens` positions to (L, h, P, D) each."""
        keys[:, :, :tokens] = self._keys[:, :, :tokens]
        values[:, :, :tokens] = self._values[:, :, :tokens]


class _Recorded:
    """The pass of one length."""

    def __init__(
        self, owner: PromptGraphs, recorder: Recorder, embeddings: Tensor, rotary: Rotary, core: AttentionCore
    ) -> None:
        self._owner, self._embeddings = owner, embeddings.clone()
        tokens = embeddings.shape[0]
        turn = copy.copy(rotary)
        turn.cos, turn.sin = rotary.cos[:tokens].clone(), rotary.sin[:tokens].clone()
        self._logits = torch.empty(0)

        def run() -> None:
            self._logits = owner.run(self._embeddings, turn, core)

        self._turn = turn
        self._replay: Callable[[], None] = recorder.recorded(run)

    def forward(self, embeddings: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self._embeddings.copy_(embeddings)
        self._replay()
        self._owner.copy_out(keys, values, embeddings.shape[0])
        return self._logits
