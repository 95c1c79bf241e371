"""Mixture of experts: softmax gate, greedy top-k without renormalising, shared experts added.

Letters: T tokens, C hidden size, I expert width, E experts, k experts a token.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.models.blocks.layers import SwiGlu
from dsocr_core.models.config import DecoderConfig


class Experts(nn.Module):
    """The routed experts' weights, stacked: (E, I, C) for gate and up, (E, C, I) for down."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        count, inner, width = config.routed_experts, config.moe_intermediate_size, config.hidden_size
        self.gate_proj = nn.Parameter(torch.empty(count, inner, width))
        self.up_proj = nn.Parameter(torch.empty(count, inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))

    def run(self, expert: int, x: Tensor) -> Tensor:
        """Run one expert on its tokens: (T, C) -> (T, C)"""
        gated = F.silu(F.linear(x, self.gate_proj[expert])) * F.linear(x, self.up_proj[expert])  # (T, I)
        return F.linear(gated, self.down_proj[expert])


class MixtureOfExperts(nn.Module):
    """(B, N, C) -> (B, N, C)"""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.scaling = config.routed_scaling_factor
        self.gate = nn.Linear(config.hidden_size, config.routed_experts, bias=False)
        self.experts = Experts(config)
        self.shared_experts = SwiGlu(config.hidden_size, config.shared_width)
        self.observers: list[Any] = []
        """Taps of a trace. They are called with the choice and with each expert's output."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.view(-1, x.shape[-1])  # (T, C)
        chosen, weights = self.route(tokens)  # (T, k) each
        for observer in self.observers:
            observer.routed(tokens, chosen, weights)
        routed = self.combine(tokens, chosen, weights).view_as(x)  # (B, N, C)
        for observer in self.observers:
            observer.ended()
        return routed + self.shared_experts(x)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Choose experts and weights of each token: (T, C) -> (T, k) ids, (T, k) float32."""
        # Written in float32 like the published code; under autocast the product still runs in bf16.
        logits = F.linear(tokens.to(torch.float32), self.gate.weight.to(torch.float32))  # (T, E)
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(scores, k=self.experts_per_token, dim=-1, sorted=False)
        return chosen, weights * self.scaling

    def combine(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Run each expert once on all its tokens, then sum in float32. Returns (T, C)."""
        if tokens.shape[0] == 1:  # saves the sorting, a twelfth of a decode step on a CPU
            each = torch.cat([self._run(expert, tokens) for expert in chosen[0].tolist()])
        else:
            each = self._by_expert(tokens, chosen)
        routed = each.view(*chosen.shape, -1).to(weights.dtype)  # (T, k, C)
        return (routed * weights.unsqueeze(-1)).sum(dim=1).to(each.dtype)

    def _by_expert(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        """The chosen experts' outputs, token after token: (T*k, C)."""
        # Not stable, as published: the order of a product's rows may change bits.
        slots = torch.argsort(chosen.view(-1))  # (T*k,) slots ordered by expert
        counts = torch.bincount(chosen.view(-1), minlength=self.experts.gate_proj.shape[0]).tolist()
        rows = tokens[slots // self.experts_per_token]  # (T*k, C)
        outputs = torch.cat(
            [self._run(e, part) for e, part in enumerate(torch.split(rows, counts)) if part.shape[0]]
        )
        back = torch.empty_like(outputs)
        back[slots] = outputs
        return back

    def _run(self, expert: int, x: Tensor) -> Tensor:
        output = self.experts.run(expert, x)
        for observer in self.observers:
            observer.ran(expert, x, output)
        return output
