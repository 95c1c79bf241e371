"""Memory of a prompt of 40 pages at the published sizes, counted on tensors without memory."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dsocr_core.engine.page import Pixels
from dsocr_core.models.blocks.attention import eager_core

PAGES = 40
PROMPT = 273 * PAGES + 5


class Live(TorchDispatchMode):
    """Bytes of the results of operations that are alive at the same time, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._live:
                    self._live[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self._live.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self._live.values()))
        return out


def test_40_pages_fit_into_24_gb_with_the_published_attention() -> None:
    q = torch.empty(1, 10, PROMPT, 128, dtype=torch.bfloat16, device="meta")
    with torch.inference_mode(), Live() as attention:
        eager_core(q, q, q)
    # Scores of all heads as float32 and what softmax makes of them: 9.6 GB of 24, beside weights and logits.
    assert attention.peak < 2 * 4 * 10 * PROMPT**2 + 2 * PROMPT**2


def test_vision_takes_page_by_page() -> None:
    pages = torch.empty(PAGES, 3, 1024, 1024, device="meta")
    assert [len(each) for each in Pixels(None, (1, 1), pages).passes] == [1] * PAGES
