"""One decode step of many sequences, each in its slot: buffers that never move and the launches over them.

Letters: S slots, L layers, h heads, P positions a slot's cache holds, D head dim, N splits of attention,
C hidden size, V vocabulary.

With a window a slot's cache is its page's prompt and a ring, which each page has turned by its own.

Matrix products over all slots are the library's; the kernels between them know where each slot stands from
`states` on the device. A step of S slots has the same launches whatever its slots hold, so one captured graph
serves all; kernels return early for finished slots. Each row of a product is summed by itself, so the other
sequences of the batch do not change a sequence's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dsocr_core.engine.fast.batch_kernels import TRITON, BatchKernels
from dsocr_core.engine.fast.batch_weights import BatchLayer, BatchWeights
from dsocr_core.kernels import state as decode_state
from dsocr_core.kernels.batch.head import head_parts
from dsocr_core.kernels.decode.embed_token import matched_at_start
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.prefill.grouped_experts import GroupedLaunch, grouped_launches
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig
from dsocr_core.reading.records import NgramPolicy

PROGRAMS = 2560
"""Programs of attention, about: as many as fit at once. More splits are shorter, and each waits for its first
rows.
"""

FEWEST_SPLITS, MOST_SPLITS = 4, 32
POSITIONS_STEP = 64
"""Slots hold a multiple of this, so that every slot's rows begin at an aligned address."""


@dataclass(frozen=True)
class BatchLaunches:
    """Block sizes of the kernels. `splits` None chooses by the number of slots, the grouped ones likewise."""

    attention: Launch = field(default=Launch(32, 4))
    stages: int = 3
    splits: int | None = None
    rows: Launch = field(default=Launch(1024, 4))
    """Launch of kernels that read a row: routing, gating, joining, the rule."""
    small: Launch = field(default=Launch(1, 1))
    """Launch of kernels that read a few numbers a program."""
    best: Launch = field(default=Launch(2048, 4))
    gate_up: GroupedLaunch | None = None
    down: GroupedLaunch | None = None

    def splits_for(self, slots: int, heads: int) -> int:
        if self.splits is not None:
            return self.splits
        wanted = max(FEWEST_SPLITS, PROGRAMS // (slots * heads))
        return min(MOST_SPLITS, 1 << (wanted - 1).bit_length())


def positions_of(prompt_tokens: int, limit: int) -> int:
    """P: what a slot must hold for such a page."""
    return -(-(prompt_tokens + limit) // POSITIONS_STEP) * POSITIONS_STEP


def slot_bytes(config: DecoderConfig, positions: int, held: int, dtype: torch.dtype) -> int:
    """Device memory of one slot: its cache, and per position a token and two match lengths; its logits."""
    cache = 2 * config.layers * config.heads * config.head_dim * dtype.itemsize
    return held * cache + positions * 12 + config.vocab_size * dtype.itemsize


class BatchStep:
    """Weights, caches and buffers of `slots` sequences, and `run()`, which decodes one token of each.

    A slot's life: `cache_of(slot)` takes a prefill, `begin` sets the page, `first` takes the prefill's logits
    and chooses the first token as every later one is; steps follow until `states` says done. `run` waits for
    nothing and may be captured.
    """

    def __init__(
        self,
        weights: BatchWeights,
        config: DecoderConfig,
        slots: int,
        positions: int,
        rotary_dtype: torch.dtype,
        eos_token_id: int,
        launches: BatchLaunches | None = None,
        kernels: BatchKernels = TRITON,
        held: int | None = None,
    ) -> None:
        """For pages of `positions`, of which with a window a slot's cache has to hold `held`."""
        if slots < 1 or positions < 1:
            raise ValueError(f"{slots} slots of {positions} positions")
        dtype, device = weights.embedding.dtype, weights.embedding.device
        positions, held = positions_of(positions, 0), positions_of(held or positions, 0)
        self.weights, self.config, self.eos_token_id = weights, config, eos_token_id
        self.launches, self.kernels = launches or BatchLaunches(), kernels
        self.slots, self.positions, self.held, self.ring = slots, positions, held, config.window or 0

        def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim = config.heads, config.head_dim
        cache = (config.layers, slots, heads, held, head_dim)
        self.keys, self.values = empty(*cache), empty(*cache)
        self.rotary = Rotary(config, positions, rotary_dtype, dtype, device)
        written = positions + POSITIONS_STEP  # the last token is written one behind the last position
        self.tokens = zeros(slots, written, dtype=torch.int32)
        self.states = zeros(slots, decode_state.SIZE, dtype=torch.int32)
        self.states[:, decode_state.DONE] = 1
        self._matched = zeros(slots, 2, written, dtype=torch.int32)

        splits = self.launches.splits_for(slots, heads)
        chosen, pairs = config.experts_per_token, slots * config.experts_per_token
        self._x, self._y = zeros(slots, config.hidden_size), zeros(slots, config.hidden_size)
        self._added = zeros(slots, config.hidden_size)
        self._qkv = zeros(slots, 3 * heads * head_dim)
        self._q = zeros(slots, heads, head_dim)
        self._partial = zeros(slots, splits, heads, head_dim, dtype=torch.float32)
        self._log_sums = zeros(slots, splits, heads, dtype=torch.float32)
        self._mixed = zeros(slots, heads * head_dim)
        self._dense_wide = zeros(slots, 2 * config.intermediate_size)
        self._dense = zeros(slots, config.intermediate_size)
        self._wide = zeros(slots, config.routed_experts + 2 * config.shared_width)
        self._shared = zeros(slots, config.shared_width)
        self._chosen = zeros(slots, chosen, dtype=torch.int32)
        self._weights = zeros(slots, chosen, dtype=torch.float32)
        self._order = zeros(pairs, dtype=torch.int32)
        self._starts = zeros(config.routed_experts + 1, dtype=torch.int32)
        self._gated = zeros(pairs, config.moe_intermediate_size)
        self._routed = zeros(slots, chosen, config.hidden_size)
        self.logits = zeros(slots, config.vocab_size)
        """Logits of the last step, -inf where the rule banned a token; undefined for a finished slot."""
        parts = head_parts(config.vocab_size)
        self._best_logit = zeros(slots, parts, dtype=torch.float32)
        self._best_token = zeros(slots, parts, dtype=torch.int32)
        self._first_logits = zeros(1, config.vocab_size)
        gate_up, down = grouped_launches(pairs, config.routed_experts)
        self._gate_up_launch = self.launches.gate_up or gate_up
        self._down_launch = self.launches.down or down

    @property
    def device(self) -> torch.device:
        return self.states.device

    # --- a page comes into its slot -------------------------------------------------------------

    def fits(self, prompt: int, limit: int) -> bool:
        """Tell whether a slot holds a page of so many tokens."""
        return prompt + limit <= self.positions and KvCache.positions(self.config, prompt, limit) <= self.held

    def cache_of(self, slot: int) -> KvCache:
        """Give that slot's part of the cache, empty, for a prefill. The slot must be finished."""
        return KvCache.over(self.keys[:, slot : slot + 1], self.values[:, slot : slot + 1])

    def begin(self, slot: int, prompt_ids: tuple[int, ...], limit: int, ngram: NgramPolicy | int) -> None:
        """Set what the slot decodes: at most `limit` new tokens after the prompt. Only queues work.

        Raises ValueError when they do not fit the slot.
        """
        count = len(prompt_ids)
        policy = NgramPolicy.of(ngram)
        if count < 1 or limit < 1:
            raise ValueError(f"{count} tokens, limit {limit}: nothing to decode")
        if not self.fits(count, limit):
            raise ValueError(f"{count} + {limit} tokens do not fit a slot of {self.positions} positions")
        ids = torch.tensor(prompt_ids, dtype=torch.int32)
        matched = matched_at_start(ids[:-1], policy.size)
        row = decode_state.state_row(count - 1, count - 1 + limit, 0, policy, first_new=count)
        state = torch.tensor(row, dtype=torch.int32)
        host = torch.cat([ids, matched, state])
        if self.device.type == "cuda":
            host = host.pin_memory()  # a copy from other memory would wait for all that is queued
        self.tokens[slot, :count].copy_(host[:count], non_blocking=True)
        # The row of the step before the first, whose current token is the prompt's last.
        self._matched[slot, count % 2, : count - 1].copy_(host[count : 2 * count - 1], non_blocking=True)
        self.states[slot].copy_(host[2 * count - 1 :], non_blocking=True)

    def first(self, slot: int, logits: Tensor) -> None:
        """Choose the first token from the prefill's `logits` (V,). Only queues work."""
        one = slice(slot, slot + 1)
        self._first_logits.copy_(logits[None])
        self._take(
            self._first_logits, self.tokens[one], self.states[one], self._matched[one],
            self._best_logit[one], self._best_token[one],
        )  # fmt: skip

    # --- a step ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Feed every live slot's current token and append the next one."""
        for _, launch in self.parts():
            launch()

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every launch of a step in order, by its name."""
        at, kernels, weights = self.launches, self.kernels, self.weights
        yield (
            "embed",
            lambda: kernels.embed_rows(self.tokens, self.states, weights.embedding, self._x, at.rows),
        )
        yield "norm", self._norm(weights.layers[0].attention_norm, None)
        gains = [layer.attention_norm for layer in weights.layers[1:]] + [weights.norm]
        for number, (layer, following) in enumerate(zip(weights.layers, gains, strict=True)):
            yield from self._attention(number, layer)
            yield "norm", self._norm(layer.norm, None, self._added)
            yield from self._mlp(layer)
            yield "norm", self._norm(following, layer, self._added)
        yield "head", lambda: _product(self._y, weights.head, self.logits)
        yield (
            "rule",
            lambda: kernels.ban_repeats(self.tokens, self.states, self._matched, self.logits, at.rows),
        )
        yield (
            "best",
            lambda: kernels.best_of_parts(
                self.logits, self.states, self._best_logit, self._best_token, at.best
            ),
        )
        yield (
            "take",
            lambda: kernels.take_best_rows(
                self._best_logit, self._best_token, self.tokens, self.states, self.eos_token_id,
                self.config.vocab_size, at.small,
            ),
        )  # fmt: skip

    def _norm(
        self, gain: Tensor, mixture: BatchLayer | None, added: Tensor | None = None
    ) -> Callable[[], None]:
        """x += the block's output; y = its norm. `mixture` is the layer whose experts are added too."""
        routes = mixture is not None and mixture.routed is not None
        experts = {"routed": self._routed, "weights": self._weights} if routes else {}
        eps = self.config.rms_norm_eps
        return lambda: self.kernels.add_and_norm(self._x, gain, self._y, eps, added=added, **experts)

    def _attention(self, number: int, layer: BatchLayer) -> Iterator[tuple[str, Callable[[], None]]]:
        at, kernels = self.launches, self.kernels
        keys, values = self.keys[number], self.values[number]  # (S, h, P, D)
        yield "qkv", lambda: _product(self._y, layer.qkv, self._qkv)
        yield (
            "rotary",
            lambda: kernels.rotary_rows(
                self._qkv,
                self.rotary.cos,
                self.rotary.sin,
                self.states,
                self._q,
                keys,
                values,
                at.small,
                self.ring,
            ),
        )
        yield (
            "attention",
            lambda: kernels.attend_rows(
                self._q,
                keys,
                values,
                self.states,
                self._partial,
                self._log_sums,
                at.attention,
                at.stages,
                self.ring,
            ),
        )
        yield "join", lambda: kernels.join_rows(self._partial, self._log_sums, self._mixed, at.small)
        yield "output", lambda: _product(self._mixed, layer.o, self._added)

    def _mlp(self, layer: BatchLayer) -> Iterator[tuple[str, Callable[[], None]]]:
        at, kernels, routed = self.launches, self.kernels, layer.routed
        if routed is None:
            yield "dense gate/up", lambda: _product(self._y, layer.wide, self._dense_wide)
            yield "gated", lambda: kernels.gated_rows(self._dense_wide, 0, self._dense, at.rows)
            yield "dense down", lambda: _product(self._dense, layer.down, self._added)
            return
        experts = self.config.routed_experts
        yield "router, shared gate/up", lambda: _product(self._y, layer.wide, self._wide)
        yield (
            "route",
            lambda: kernels.route_rows(
                self._wide, experts, self.states, self._chosen, self._weights,
                self.config.routed_scaling_factor, at.rows,
            ),
        )  # fmt: skip
        yield "order", lambda: kernels.order_by_expert(self._chosen, self._order, self._starts)
        yield (
            "experts gate/up",
            lambda: kernels.grouped_gate_up(
                self._y, self._order, self._starts, routed.gate, routed.up, self._gated, self._gate_up_launch
            ),
        )
        yield (
            "experts down",
            lambda: kernels.grouped_down(
                self._gated, self._order, self._starts, routed.down, self._routed, self._down_launch
            ),
        )
        yield "gated", lambda: kernels.gated_rows(self._wide, experts, self._shared, at.rows)
        yield "shared down", lambda: _product(self._shared, layer.down, self._added)

    def _take(
        self,
        logits: Tensor,
        tokens: Tensor,
        states: Tensor,
        matched: Tensor,
        best_logit: Tensor,
        best_token: Tensor,
    ) -> None:
        """Ban, choose and append, for the slots of these rows."""
        at, kernels = self.launches, self.kernels
        kernels.ban_repeats(tokens, states, matched, logits, at.rows)
        kernels.best_of_parts(logits, states, best_logit, best_token, at.best)
        kernels.take_best_rows(
            best_logit, best_token, tokens, states, self.eos_token_id, self.config.vocab_size, at.small
        )


def _product(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """(S, K) by (M, K) into (S, M)."""
    torch.mm(x, weight.t(), out=out)
