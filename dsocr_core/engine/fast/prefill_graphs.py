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

MOST_TOKENS = 4096
"""Tokens of all pages of a pass; longer prompts use plain launches. The buffer is always held, 0.25 GB at
published sizes.
"""

_Key = tuple[int, int, AttentionCore]
"""Tokens of a page, pages, attention."""


class PromptGraphs:
    """`FastPrefill.forward`, captured where there is a recorder.

    Not safe for concurrent use: hold the device's lock.
    """

    def __init__(self, prefill: FastPrefill, config: DecoderConfig, recorder: Recorder | None) -> None:
        self._prefill, self._recorder, self._config = prefill, recorder, config
        self._keys, self._values = self._halves(MOST_TOKENS if recorder else 0)
        self._seen: OrderedDict[_Key, _Recorded | None] = OrderedDict()

    def forward(
        self, embeddings: Tensor, keys: Tensor, values: Tensor, rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        """Logits (V,) float32 after (N, C), as `FastPrefill.forward`; they last until the next call."""
        tokens = embeddings.shape[0]
        if tokens > MOST_TOKENS or (found := self._recorded(embeddings, rotary, core, 1)) is None:
            return self._prefill.forward(embeddings, keys, values, rotary, core)
        logits = found.forward(embeddings)
        self.copy_out(keys, values, tokens)
        return logits

    def forward_pages(self, embeddings: Tensor, pages: int, rotary: Rotary, core: AttentionCore) -> Tensor:
        """Logits (B, V) float32 after several pages, (B N, C), at most MOST_TOKENS together.

        They last until the next call, as do the keys and values, which `copy_out` brings to a page's cache.
        """
        if self._recorder is None and len(embeddings) > self._keys.shape[2]:
            self._keys, self._values = self._halves(len(embeddings))
        found = self._recorded(embeddings, rotary, core, pages)
        return self.run(embeddings, rotary, core, pages) if found is None else found.forward(embeddings)

    def run(self, embeddings: Tensor, rotary: Rotary, core: AttentionCore, pages: int) -> Tensor:
        """Run the pass, with keys and values to the buffer here."""
        return self._prefill.forward(embeddings, self._keys, self._values, rotary, core, pages)

    def copy_out(self, keys: Tensor, values: Tensor, tokens: int, page: int = 0) -> None:
        """A page's `tokens` positions to (L, h, P, D) each."""
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
        """The captured pass of such pages; None where there is none yet."""
        if self._recorder is None:
            return None
        key = (embeddings.shape[0] // pages, pages, core)
        if key not in self._seen:
            if len(self._seen) == MOST_LENGTHS:
                self._seen.popitem(last=False)
            self._seen[key] = None
            return None
        self._seen.move_to_end(key)
        found = self._seen[key]
        if found is None:
            found = self._seen[key] = _Recorded(self, self._recorder, embeddings, rotary, core, pages)
        return found


class _Recorded:
    """The pass of one length."""

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
        turn = copy.copy(rotary)
        turn.cos, turn.sin = rotary.cos[:tokens].clone(), rotary.sin[:tokens].clone()
        self._logits = torch.empty(0)

        def run() -> None:
            self._logits = owner.run(self._embeddings, turn, core, pages)

        self._turn = turn
        self._replay: Callable[[], None] = recorder.recorded(run)

    def forward(self, embeddings: Tensor) -> Tensor:
        self._embeddings.copy_(embeddings)
        self._replay()
        return self._logits
