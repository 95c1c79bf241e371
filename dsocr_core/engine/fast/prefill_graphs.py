"""Prefill of the language model captured: a CUDA graph for each length that comes again.

With plain launches the host takes longer over a prompt than the device does, which shows where vision before
it is short. A graph's addresses are fixed, so it writes keys and values to a buffer of its own, from which
they are copied to the page's cache. Lengths repeat from page to page, as grid and prompt determine them; a
length that occurs once is not worth capturing.

Letters: B prompts, N tokens, C hidden size, L layers, h heads, P positions of a cache, D head dim, V
vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dsocr_core.engine.fast.cuda_graph import Recorder
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.config import DecoderConfig

MOST_LENGTHS = 24
"""Gundam has 17 grids of one to nine tiles, the prompt alone a few."""

MOST_TOKENS = 4096
"""More tokens use plain launches: the buffer is always held, 0.25 GB at published sizes."""

_Key = tuple[int, int, AttentionCore]
_Cache = tuple[Tensor, Tensor]


class PromptGraphs:
    """`FastPrefill.forward_all`, captured where there is a recorder.

    Not safe for concurrent use: hold the device's lock.
    """

    def __init__(self, prefill: FastPrefill, config: DecoderConfig, recorder: Recorder | None) -> None:
        self._prefill, self._recorder = prefill, recorder
        shape = (config.layers, config.heads, MOST_TOKENS if recorder else 0, config.head_dim)
        dtype, device = prefill.dtype, prefill.device
        self._keys, self._values = (torch.zeros(shape, dtype=dtype, device=device) for _ in "kv")
        self._seen: OrderedDict[_Key, _Recorded | None] = OrderedDict()

    def forward(
        self, embeddings: Tensor, caches: Sequence[_Cache], rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        """Logits (B, V) float32 after B prompts of one length, (B N, C), which go to the first N positions of
        their caches, (L, h, P, D) each. The logits last until the next call.

        Several prompts are one pass where that is captured, which it is at once.
        """
        key = (len(embeddings), len(caches), core)
        if self._recorder is None or len(embeddings) > MOST_TOKENS:
            return self._apart(embeddings, caches, rotary, core)
        if key not in self._seen:
            if len(self._seen) == MOST_LENGTHS:
                self._seen.popitem(last=False)
            self._seen[key] = None
            if len(caches) == 1:
                return self._apart(embeddings, caches, rotary, core)
        self._seen.move_to_end(key)
        found = self._seen[key]
        if found is None:
            found = _Recorded(self, self._recorder, embeddings, len(caches), rotary, core)
            self._seen[key] = found
        logits = found.forward(embeddings)
        each = len(embeddings) // len(caches)
        for number, cache in enumerate(caches):
            for part, own in zip(cache, (self._keys, self._values), strict=True):
                part[:, :, :each] = own[:, :, number * each : (number + 1) * each]
        return logits

    def _apart(
        self, embeddings: Tensor, caches: Sequence[_Cache], rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        prompts = zip(embeddings.chunk(len(caches)), caches, strict=True)
        return torch.stack([self._prefill.forward(one, *cache, rotary, core) for one, cache in prompts])

    def run(self, embeddings: Tensor, prompts: int, turn: _Cache, core: AttentionCore) -> Tensor:
        """Run what is captured: the pass, with keys and values to the graph's own buffer."""
        return self._prefill.forward_all(embeddings, prompts, self._keys, self._values, *turn, core)


class _Recorded:
    """The pass of one length and number of prompts."""

    def __init__(
        self,
        owner: PromptGraphs,
        recorder: Recorder,
        embeddings: Tensor,
        prompts: int,
        rotary: Rotary,
        core: AttentionCore,
    ) -> None:
        self._embeddings, each = embeddings.clone(), len(embeddings) // prompts
        turn = (rotary.cos[:each].repeat(prompts, 1), rotary.sin[:each].repeat(prompts, 1))
        self._logits = torch.empty(0)

        def run() -> None:
            self._logits = owner.run(self._embeddings, prompts, turn, core)

        self._turn = turn
        self._replay: Callable[[], None] = recorder.recorded(run)

    def forward(self, embeddings: Tensor) -> Tensor:
        self._embeddings.copy_(embeddings)
        self._replay()
        return self._logits
