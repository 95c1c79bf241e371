"""Buffers of the rows that a batch's step feeds.

Letters: S slots, K rows a slot, R = K S, h heads, D head dim, N splits of attention, C hidden size,
E experts, k experts a token, V vocabulary. Row r S + s is r tokens ahead of slot s's current one: the rows
of one r are what a step of one row a slot has.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.kernels.batch.head import head_parts
from dsocr_core.models.config import DecoderConfig


@dataclass(frozen=True)
class BatchRows:
    """By what they hold; all but `starts` grow with the rows."""

    x: Tensor
    y: Tensor
    added: Tensor
    qkv: Tensor
    q: Tensor
    partial: Tensor
    log_sums: Tensor
    mixed: Tensor
    dense_wide: Tensor
    dense: Tensor
    wide: Tensor
    shared: Tensor
    chosen: Tensor
    weights: Tensor
    order: Tensor
    starts: Tensor
    gated: Tensor
    routed: Tensor
    logits: Tensor
    best_logit: Tensor
    best_token: Tensor

    @classmethod
    def of(
        cls, config: DecoderConfig, rows: int, splits: int, dtype: torch.dtype, device: torch.device
    ) -> BatchRows:
        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim, width = config.heads, config.head_dim, config.hidden_size
        chosen, parts = config.experts_per_token, head_parts(config.vocab_size)
        return cls(
            x=zeros(rows, width),
            y=zeros(rows, width),
            added=zeros(rows, width),
            qkv=zeros(rows, 3 * heads * head_dim),
            q=zeros(rows, heads, head_dim),
            partial=zeros(rows, splits, heads, head_dim, dtype=torch.float32),
            log_sums=zeros(rows, splits, heads, dtype=torch.float32),
            mixed=zeros(rows, heads * head_dim),
            dense_wide=zeros(rows, 2 * config.intermediate_size),
            dense=zeros(rows, config.intermediate_size),
            wide=zeros(rows, config.routed_experts + 2 * config.shared_width),
            shared=zeros(rows, config.shared_width),
            chosen=zeros(rows, chosen, dtype=torch.int32),
            weights=zeros(rows, chosen, dtype=torch.float32),
            order=zeros(rows * chosen, dtype=torch.int32),
            starts=zeros(config.routed_experts + 1, dtype=torch.int32),
            gated=zeros(rows * chosen, config.moe_intermediate_size),
            routed=zeros(rows, chosen, width),
            logits=zeros(rows, config.vocab_size),
            best_logit=zeros(rows, parts, dtype=torch.float32),
            best_token=zeros(rows, parts, dtype=torch.int32),
        )

    def first(self, rows: int) -> BatchRows:
        """The same buffers' first rows."""
        held = len(self.x)
        return BatchRows(**{
            name: tensor if name == "starts" else tensor[: len(tensor) * rows // held]
            for name, tensor in vars(self).items()
        })  # fmt: skip
