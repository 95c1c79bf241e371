"""The language decoder: Llama attention and a mixture of SwiGLU experts.

T tokens of all sequences, K experts a token, H hidden size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaFlashAttention2, LlamaRMSNorm

from .configuration_deepseekocr import DeepseekOCRConfig

ATTENTION = {"eager": LlamaAttention, "flash_attention_2": LlamaFlashAttention2}


class DecoderLayer(nn.Module):
    """Layers below `first_k_dense_replace` have one dense SwiGLU, the others a mixture."""

    def __init__(self, config: DeepseekOCRConfig, layer: int) -> None:
        super().__init__()
        if config._attn_implementation not in ATTENTION:
            raise ValueError(
                f"attention '{config._attn_implementation}': choose one of {', '.join(ATTENTION)}"
            )
        self.self_attn = ATTENTION[config._attn_implementation](config=config, layer_idx=layer)
        dense = layer < config.first_k_dense_replace
        self.mlp = SwiGlu(config.hidden_size, config.intermediate_size) if dense else Mixture(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        cache: Cache | None,
    ) -> Tensor:
        attended, _, _ = self.self_attn(
            hidden_states=self.input_layernorm(x),
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_value=cache,
            position_embeddings=position_embeddings,
        )
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x))


class SwiGlu(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Mixture(nn.Module):
    """Greedy top-K of the routed experts, weighted and not renormalised, plus the shared experts."""

    def __init__(self, config: DeepseekOCRConfig) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.scaling = config.routed_scaling_factor
        self.gate = Gate(hidden, config.n_routed_experts, config.num_experts_per_tok)
        self.experts = nn.ModuleList(SwiGlu(hidden, width) for _ in range(config.n_routed_experts))
        self.shared_experts = SwiGlu(hidden, width * config.n_shared_experts)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])  # (T, H)
        chosen, weights = self.gate(tokens)  # (T, K) both
        routed = self.run_experts(tokens, chosen)  # (T, K, H)
        weights = (weights * self.scaling).unsqueeze(-1)
        combined = (routed.to(weights.dtype) * weights).sum(dim=1).to(routed.dtype)
        return combined.view(x.shape) + self.shared_experts(x)

    def run_experts(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        """Each expert sees its tokens in one batch; the results go back to their places."""
        slots = chosen.flatten().argsort()  # slots ordered by expert
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        batches = tokens[slots // chosen.shape[1]].split(counts)
        outputs = [expert(rows) for expert, rows in zip(self.experts, batches, strict=True) if len(rows)]
        by_expert = torch.cat(outputs)
        by_slot = torch.empty_like(by_expert)
        by_slot[slots] = by_expert
        return by_slot.view(*chosen.shape, -1)


class Gate(nn.Module):
    def __init__(self, hidden: int, experts: int, per_token: int) -> None:
        super().__init__()
        self.per_token = per_token
        self.weight = nn.Parameter(torch.zeros(experts, hidden))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        # Written in float32, yet autocast runs the product in bfloat16: that is the published result.
        logits = F.linear(tokens.float(), self.weight.float())
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(scores, self.per_token, dim=-1, sorted=False)
        return chosen, weights
