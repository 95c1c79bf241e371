"""The published encoder's mask, asked of one layer: libraries that pass over it make the encoder causal.

Letters: T features of a view and as many queries, C width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FEATURES = 144
"""T of the smaller view."""


class _FirstAttentionEnded(BaseException):
    """Leaves the encoder."""


def mask_problem(model: Any) -> str | None:
    """Say how the encoder's mask is not in force; None when it is.

    Three copies of a view's rows differ from the first in one row each: the last feature, the first query,
    the last query. A row of attention's output moves where it sees that row. Features see all features and
    no query, queries also the queries up to themselves.
    """
    last_feature, first_query, last_query = _moved(model)
    if not last_feature[: FEATURES - 1].any():
        return "the encoder's mask is not applied: no feature of a view sees a later one"
    if first_query[:FEATURES].any():
        return "the encoder's mask is not applied: features of a view see its queries"
    if last_query[: 2 * FEATURES - 1].any():
        return "the encoder's mask is not applied: a query sees later ones"
    return None


def _moved(model: Any) -> Tensor:
    """Rows of the first attention's output that move with each of three rows, (3, 2T) bool."""
    encoder = model.model.qwen2_model
    layer, queries = encoder.model.model.layers[0], encoder.query_768.weight
    width, side = queries.shape[1], int(FEATURES**0.5)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 2 * FEATURES, width, generator=draw).repeat(4, 1, 1)  # (4, 2T, C)
    for copy, row in enumerate((FEATURES - 1, FEATURES, 2 * FEATURES - 1), start=1):
        rows[copy, row] = torch.randn(width, generator=draw)
    rows = rows.to(queries.device, queries.dtype)
    outputs: list[Tensor] = []

    def begins(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return ((rows, *inputs[1:]), named) if inputs else (inputs, {**named, "hidden_states": rows})

    def ended(_module: Any, _inputs: Any, output: Any) -> None:
        outputs.append(output[0])
        raise _FirstAttentionEnded

    before = layer.register_forward_pre_hook(begins, with_kwargs=True)
    after = layer.self_attn.register_forward_hook(ended)
    try:
        with torch.inference_mode(), before, after:
            encoder(rows.new_zeros(4, width, side, side))
    except _FirstAttentionEnded:
        pass
    return (outputs[0][1:] != outputs[0][:1]).any(dim=-1).cpu()
