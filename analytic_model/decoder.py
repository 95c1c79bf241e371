"""The language model, operator by operator, as the core runs it: prefill and decode."""

from __future__ import annotations

from collections.abc import Callable

from analytic_model import ops
from analytic_model.ops import Cost
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost, Tally
from analytic_model.workload import Workload
from dsocr_core.models.config import DecoderConfig, ModelConfig
from dsocr_core.models.stages import Stage


def prefill(config: ModelConfig, workload: Workload, policy: Policy) -> StageCost:
    """Cost of the prompt: embeddings -> KV cache and the first token's logits, without vision."""
    decoder, batch, tokens = config.decoder, workload.batch, workload.sequence_length
    tally = Tally(Stage.PREFILL)
    _layers(tally, decoder, policy, batch, tokens, first_context=tokens, steps=1)
    positions = tokens if policy.lm_head == "all" else 1
    _head(tally, decoder, policy, batch * positions, steps=1)
    embeddings = batch * tokens * decoder.hidden_size * policy.element_bytes
    logits = batch * positions * decoder.vocab_size * ops.FLOAT32_BYTES
    return StageCost(Stage.PREFILL, tuple(tally.operators), embeddings + logits)


def decode(
    config: ModelConfig, context: int, steps: int, policy: Policy, batch: int = 1, prompt: int | None = None
) -> StageCost:
    """Cost of `steps` tokens one by one; the first has `context` positions in the cache before it."""
    decoder, size = config.decoder, policy.element_bytes
    tally = Tally(Stage.DECODE)
    if steps:
        row = ops.embedding(batch, decoder.vocab_size, decoder.hidden_size, size)
        tally.add("embed_tokens", "embedding", row, runs=steps)
        most = None if decoder.window is None else (prompt or context) + decoder.window
        _layers(tally, decoder, policy, batch, 1, first_context=context + 1, steps=steps, most=most)
        _head(tally, decoder, policy, batch, steps)
    logits = steps * batch * decoder.vocab_size * ops.FLOAT32_BYTES
    return StageCost(Stage.DECODE, tuple(tally.operators), logits + steps * batch * ops.INDEX_BYTES)


def _layers(
    tally: Tally,
    config: DecoderConfig,
    policy: Policy,
    batch: int,
    tokens: int,
    first_context: int,
    steps: int,
    most: int | None = None,
) -> None:
    """Add all layers over `tokens` new positions of each page, `steps` times in a growing context.

    `first_context` is the number of positions that the first step attends to, its own included.
    """
    size, width, layers = policy.element_bytes, config.hidden_size, config.layers
    rows = batch * tokens
    norm = ops.rms_norm(rows, width, size)
    project = ops.linear(rows, width, width, size, bias=False)
    tally.add("layers.norm", "rms_norm", norm, 2 * layers, steps)
    for name in ("q_proj", "k_proj", "v_proj"):
        tally.add(f"layers.self_attn.{name}", "mm", project, layers, steps)
    turned = ops.rotary(rows, tokens, config.heads, config.head_dim, size)
    tally.add("layers.self_attn.rotary", "rotary", turned, 2 * layers, steps)
    tally.add("layers.self_attn.cache", "kv_write", ops.kv_write(rows, width, size), layers, steps)
    _attention_core(tally, config, policy, batch, tokens, first_context, steps, most)
    tally.add("layers.self_attn.o_proj", "mm", project, layers, steps)
    tally.add("layers.residual", "add", ops.add(rows * width, size), 2 * layers, steps)

    dense = min(config.first_dense_layers, layers)
    tally.add_swiglu("layers.mlp", rows, width, config.intermediate_size, size, dense, steps)
    _mixture(tally, config, policy, rows, layers - dense, steps)


def _attention_core(
    tally: Tally,
    config: DecoderConfig,
    policy: Policy,
    batch: int,
    tokens: int,
    first: int,
    steps: int,
    most: int | None,
) -> None:
    size, heads, head_dim, layers = policy.element_bytes, config.heads, config.head_dim, config.layers
    rows = batch * tokens
    module = "layers.self_attn.core"

    def pairs(context: int) -> int:
        """(query, key) pairs of all pages that are computed."""
        if policy.causal == "full":
            return rows * context
        return batch * (tokens * (context - tokens) + tokens * (tokens + 1) // 2)

    def summed(cost_at: Callable[[int], Cost]) -> Cost:
        if most is None:
            return ops.over_growing_context(cost_at, first, steps)
        growing = max(0, min(steps, most + 1 - first))
        flat = cost_at(most).times(1, steps - growing)
        return flat if not growing else ops.over_growing_context(cost_at, first, growing) + flat

    def fused(context: int) -> Cost:
        return ops.attention(heads, head_dim, rows, batch * context, pairs(context), size, cached=True)

    if policy.attention == "sdpa":
        tally.add_fused_attention(module, summed(fused), policy, layers, steps)
    elif policy.attention == "flash_attention_2":
        core = summed(fused)
        if policy.ignore_torch_unsupported_flops:
            core = core._replace(flops=0)
        tally.add_summed(module, "flash_attn", core, layers, steps)
    else:

        def product(number: int) -> Cost:
            return summed(
                lambda context: ops.attention_products(
                    heads, head_dim, rows, batch * context, pairs(context), size
                )[number]
            )

        tally.add_summed(f"{module}.scores", "bmm", product(0), layers, steps)
        scaled = summed(lambda context: ops.elementwise("scale", pairs(context) * heads, size))
        tally.add_summed(f"{module}.scale", "div", scaled, layers, steps)
        if tokens > 1:
            mask = ops.add(pairs(first) * heads, size, repeated=tokens * first)
            tally.add(f"{module}.mask", "add", mask, layers)
        weights = summed(lambda context: ops.elementwise("softmax", heads * pairs(context), size))
        tally.add_summed(f"{module}.softmax", "softmax", weights, layers, steps)
        tally.add_summed(f"{module}.values", "bmm", product(1), layers, steps)


def _mixture(tally: Tally, config: DecoderConfig, policy: Policy, rows: int, layers: int, steps: int) -> None:
    """Add gate, routed experts and shared experts. How many rows run does not depend on the page.

    Weights read are those of the expected number of experts if each row chooses evenly and independently.
    """
    size, width, inner = policy.element_bytes, config.hidden_size, config.moe_intermediate_size
    experts, chosen = config.routed_experts, config.experts_per_token
    routed = rows * chosen
    read = round(experts * (1 - (1 - chosen / experts) ** rows))
    moe = "layers.moe"
    gate = ops.linear(rows, width, experts, size, bias=False)
    tally.add(f"{moe}.gate", "mm", gate, layers, steps)
    scores = ops.elementwise("softmax", rows * experts, ops.FLOAT32_BYTES)
    tally.add(f"{moe}.gate.softmax", "softmax", scores, layers, steps)
    tally.add(f"{moe}.gate.topk", "topk", ops.topk(rows, experts, chosen), layers, steps)
    if rows > 1:  # a single row is not copied for its experts
        tally.add(f"{moe}.rows", "index", ops.elementwise("copy", routed * width, size), layers, steps)
    tally.add_swiglu(f"{moe}.experts", routed, width, inner, size, layers, steps, read, experts)
    summed = ops.weighted_sum(rows, chosen, width, size)
    tally.add(f"{moe}.combine", "weighted_sum", summed, layers, steps)
    tally.add_swiglu(f"{moe}.shared", rows, width, config.shared_width, size, layers, steps)
    tally.add(f"{moe}.add", "add", ops.add(rows * width, size), layers, steps)


def _head(tally: Tally, config: DecoderConfig, policy: Policy, rows: int, steps: int) -> None:
    size, width, vocabulary = policy.element_bytes, config.hidden_size, config.vocab_size
    tally.add("norm", "rms_norm", ops.rms_norm(rows, width, size), runs=steps)
    head = ops.linear(rows, width, vocabulary, size, bias=False)
    if policy.head_in_8_bits:
        saved = head.weight_bytes - width * vocabulary
        head = head._replace(bytes_read=head.bytes_read - saved, weight_bytes=head.weight_bytes - saved)
    tally.add("lm_head", "mm", head, runs=steps)
