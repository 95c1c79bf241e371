"""The published encoder's mask, asked of one layer: libraries that pass over it make the encoder causal.

Letters: T features of a view and as many queries, C width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FEATURES = 144
"""T of the smaller view."""


class _Heard(BaseException):
    """Leaves the encoder after its first attention."""


def mask_problem(model: Any) -> str | None:
    """Say how the encoder's mask is not in force; None when it is.

    Three copies of a view's rows differ from the first in one row each: the last feature, the first query,
    the last query. A row of attention's output moves where it sees that row. Features see all features and
    no query, queries also the queries up to themselves.
    """
    moved = _moved(model)
    last_feature, first_query, last_query = (torch.nonzero(rows).flatten().tolist() for rows in moved)
    if not any(row < FEATURES - 1 for row in last_feature):
        return "the encoder's mask is not applied: no feature of a view sees a later one"
    if any(row < FEATURES for row in first_query):
        return "the encoder's mask is not applied: features of a view see its queries"
    if any(row < 2 * FEATURES - 1 for row in last_query):
        return "the encoder's mask is not applied: a query sees later ones"
    return None


def _moved(model: Any) -> Tensor:
    """Tell which rows of the first attention's output move with each of three rows, (3, 2T) bool."""
    encoder = model.model.qwen2_model
    layer = encoder.model.model.layers[0]
    queries = encoder.query_768.weight
    width, device, dtype = queries.shape[1], queries.device, queries.dtype
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 2 * FEATURES, width, generator=draw).repeat(4, 1, 1)  # (4, 2T, C)
    for copy, row in enumerate((FEATURES - 1, FEATURES, 2 * FEATURES - 1), start=1):
        rows[copy, row] = torch.randn(width, generator=draw)
    heard: list[Tensor] = []

    def begins(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        given = rows.to(device, dtype)
        return ((given, *inputs[1:]), named) if inputs else (inputs, {**named, "hidden_states": given})

    def ended(_module: Any, _inputs: Any, output: Any) -> None:
        heard.append(output[0])
        raise _Heard

    side = int(FEATURES**0.5)
    handles = [
        layer.register_forward_pre_hook(begins, with_kwargs=True),
        layer.self_attn.register_forward_hook(ended),
    ]
    try:
        with torch.inference_mode():
            encoder(torch.zeros(4, width, side, side, device=device, dtype=dtype))
    except _Heard:
        pass
    finally:
        for handle in handles:
            handle.remove()
    out = heard[0]  # (4, 2T, C)
    return (out[1:] != out[:1]).any(dim=-1).cpu()
