"""One decode step of many sequences, each in its slot: buffers that never move and the launches over them.

Letters: S slots, K rows a slot, R = K S, L layers, h heads, P positions a slot's cache holds, N tokens of the
prompt, D head dim, C hidden size, V vocabulary. Row r S + s is r tokens ahead of slot s's current one.

A pass over drafts is a step with K rows a slot: the current token and what the slot's draft says comes next
(`kernels.batch.drafts`). Its tokens and logits are those of single steps, bit for bit: products over all
slots are made S rows at a time, unless all rows at once have shown the same bits, and everything else sums
each row by itself in one order. So the other sequences of the batch do not change a sequence's tokens.

Matrix products are the library's; the kernels between them know where each slot stands from `states` on the
device. A step of S slots has the same launches whatever its slots hold, so one captured graph serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch
from torch import Tensor

from dsocr_core.base.specs import Precision
from dsocr_core.engine.fast.drafts import MOST_DRAFTED, draft_rows
from dsocr_core.engine.fast.graphs import SideStream
from dsocr_core.engine.fast.weights import DecoderWeights, Experts, LayerWeights
from dsocr_core.kernels import state as decode_state
from dsocr_core.kernels.batch.attention import attend_rows, join_rows
from dsocr_core.kernels.batch.drafts import DRAFT_SIZE, LENGTH, accept
from dsocr_core.kernels.batch.embed import Drafts, embed_rows
from dsocr_core.kernels.batch.head import ban_repeats, best_of_parts, head_parts, take_best_rows
from dsocr_core.kernels.batch.rotary import rotary_rows
from dsocr_core.kernels.batch.router import gated_rows, route_rows
from dsocr_core.kernels.batch.scales import FP8, Scales, as_cached, scales_of
from dsocr_core.kernels.decode.embed_token import matched_at_start
from dsocr_core.kernels.launch import TRITON, Kernels, Launch, Tile
from dsocr_core.kernels.prefill.add_norm import add_and_norm
from dsocr_core.kernels.prefill.expert_order import order_by_expert
from dsocr_core.kernels.prefill.grouped_experts import grouped_down, grouped_gate_up, grouped_launches
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig
from dsocr_core.reading.records import NgramPolicy

PASS_ROWS = (4, 8)
"""Numbers of rows a slot that a pass over drafts may have."""
MOST_ROWS = max(PASS_ROWS)
POSITIONS_STEP = 64
"""Cache positions are a multiple of this, so that every slot's rows begin at an aligned address."""


def slot_positions(prompt_tokens: int, limit: int) -> int:
    """P: positions of a slot for a page with that prompt and token limit."""
    return -(-(prompt_tokens + limit) // POSITIONS_STEP) * POSITIONS_STEP


def ring_slack(config: DecoderConfig, drafted: bool) -> int:
    """Places of a ring beyond its window, so that refused rows of a draft never overwrite visible keys."""
    return MOST_ROWS - 1 if drafted and config.window is not None else 0


def position_bytes(config: DecoderConfig, dtype: torch.dtype, precision: Precision) -> int:
    """Bytes of keys and values of one position in all layers."""
    size = 1 if precision == "fp8-kv" else dtype.itemsize
    return 2 * config.layers * config.heads * config.head_dim * size


def slot_bytes(
    config: DecoderConfig,
    positions: int,
    cached: int,
    dtype: torch.dtype,
    drafted: bool = False,
    precision: Precision = "off",
) -> int:
    """Device memory of one slot: its cache, a token and match lengths for each position, its logits."""
    cache = position_bytes(config, dtype, precision)
    rows = MOST_ROWS if drafted else 1
    return cached * cache + positions * (4 + 8 * rows) + rows * config.vocab_size * dtype.itemsize


class SlotCaches:
    """Caches of all slots: `keys`, `values` (L, S, h, P, D); with 8 bits also their `scales` (L, S, h)."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, precision: Precision
    ) -> None:
        eight = precision == "fp8-kv"
        self.keys, self.values = (
            torch.empty(shape, dtype=FP8 if eight else dtype, device=device) for _ in "kv"
        )
        self.scales: Scales = (None, None)
        self._prompt: Tensor | None = None
        if eight:
            self.scales = torch.ones(shape[:3], device=device), torch.ones(shape[:3], device=device)
            layers, _, *rest = shape
            self._prompt = torch.empty(2, layers, 1, *rest, dtype=dtype, device=device)

    def of_layer(self, number: int) -> Scales:
        """Scales of keys and values of a layer, (S, h) each."""
        keys, values = (None if scale is None else scale[number] for scale in self.scales)
        return keys, values

    def of_slot(self, slot: int) -> KvCache:
        """Empty cache of one slot, for a prefill."""
        if self._prompt is None:
            return KvCache.over(self.keys[:, slot : slot + 1], self.values[:, slot : slot + 1])
        cache = _Rounded.over(self._prompt[0], self._prompt[1])
        cache.into = self, slot
        return cache

    def round(self, slot: int, prompt: tuple[Tensor, Tensor], count: int) -> None:
        """Round the first positions of full-precision keys and values, (L, 1, h, P, D) each, into a slot."""
        for half, mine, scales in zip(prompt, (self.keys, self.values), self.scales, strict=True):
            written, scale = half[:, 0, :, :count], None  # (L, h, N, D)
            if scales is not None:
                scales[:, slot] = scales_of(written)
                scale = scales[:, slot, :, None, None]
            mine[:, slot, :, :count] = as_cached(written, scale)


class _Rounded(KvCache):
    """Full-precision cache of a prefill, which is rounded into its slot when the prefill has ended."""

    into: tuple[SlotCaches, int]

    def advance(self, count: int) -> None:
        super().advance(count)
        caches, slot = self.into
        caches.round(slot, (self.keys, self.values), self.length)


class BatchRows:
    """Buffers of a step with a certain number of rows a slot."""

    def __init__(
        self, config: DecoderConfig, rows: int, splits: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim, width = config.heads, config.head_dim, config.hidden_size
        chosen, parts = config.experts_per_token, head_parts(config.vocab_size)
        self.x, self.y, self.added = (zeros(rows, width) for _ in range(3))
        self.qkv = zeros(rows, 3 * heads * head_dim)
        self.q = zeros(rows, heads, head_dim)
        self.partial = zeros(rows, splits, heads, head_dim, dtype=torch.float32)
        self.log_sums = zeros(rows, splits, heads, dtype=torch.float32)
        self.mixed = zeros(rows, heads * head_dim)
        self.dense_wide = zeros(rows, 2 * config.intermediate_size)
        self.dense = zeros(rows, config.intermediate_size)
        self.wide = zeros(rows, config.routed_experts + 2 * config.shared_width)
        self.shared = zeros(rows, config.shared_width)
        self.chosen = zeros(rows, chosen, dtype=torch.int32)
        self.weights = zeros(rows, chosen, dtype=torch.float32)
        self.order = zeros(rows * chosen, dtype=torch.int32)
        self.starts = zeros(config.routed_experts + 1, dtype=torch.int32)
        self.gated = zeros(rows * chosen, config.moe_intermediate_size)
        self.routed = zeros(rows, chosen, width)
        self.logits = zeros(rows, config.vocab_size)
        self.best_logit = zeros(rows, parts, dtype=torch.float32)
        self.best_token = zeros(rows, parts, dtype=torch.int32)

    def first(self, rows: int) -> BatchRows:
        """These buffers cut to their first rows."""
        part, most = copy(self), len(self.x)
        for name, tensor in vars(self).items():
            if name != "starts":
                setattr(part, name, tensor[: len(tensor) * rows // most])
        return part


PROGRAMS = 2560
"""Number of attention programs that run at the same time, about."""
FEWEST_SPLITS, MOST_SPLITS = 4, 32


@dataclass(frozen=True)
class BatchLaunches:
    """Block sizes of the kernels. None of `splits` or of a tile chooses by the number of slots."""

    attention: Launch = field(default=Launch(32, 1))
    """One warp: with 8-bit keys several would wait for each other longer than for memory."""
    stages: int = 3
    splits: int | None = None
    rows: Launch = field(default=Launch(1024, 4))
    """Launch of kernels whose program is a row: routing, gating, joining, the n-gram rule."""
    small: Launch = field(default=Launch(1, 1))
    """Launch of kernels whose program reads a few numbers."""
    best: Launch = field(default=Launch(2048, 4))
    accept: Launch = field(default=Launch(512, 8))
    gate_up: Tile | None = None
    down: Tile | None = None

    def splits_for(self, slots: int, heads: int) -> int:
        if self.splits is not None:
            return self.splits
        wanted = max(FEWEST_SPLITS, PROGRAMS // (slots * heads))
        return min(MOST_SPLITS, 1 << (wanted - 1).bit_length())


Named = tuple[str, Callable[[], object]]
"""Name of a kernel, with its launch or launches."""
Tiles = tuple[Tile, Tile]
"""Tiles of the experts' gate and up products, and of their down product."""


class BatchStep:
    """Weights, caches and buffers of `slots` sequences, and `run()`, which decodes one token of each.

    Use of a slot: `cache_of(slot)` takes a prefill, `begin` sets the page, `first` chooses the first token
    from the prefill's logits. Then follow steps until `states` says done. `run` waits for nothing and may be
    captured.
    """

    def __init__(
        self,
        weights: DecoderWeights,
        config: DecoderConfig,
        slots: int,
        positions: int,
        rotary_dtype: torch.dtype,
        eos_token_id: int,
        launches: BatchLaunches | None = None,
        kernels: Kernels = TRITON,
        cached: int | None = None,
        drafted: bool = False,
        precision: Precision = "off",
        own_text: bool = False,
    ) -> None:
        """Slots for pages of `positions`, of which the cache has room for `cached`. With `drafted` a slot may
        have several rows; with `own_text` pages draft from their own tokens. Raises ValueError.
        """
        if slots < 1 or positions < 1:
            raise ValueError(f"{slots} slots of {positions} positions")
        dtype, device = weights.embedding.dtype, weights.embedding.device
        positions, cached = slot_positions(positions, 0), slot_positions(cached or positions, 0)
        self.weights, self.config, self.eos_token_id = weights, config, eos_token_id
        self.launches, self.kernels = launches or BatchLaunches(), kernels
        self.slots, self.positions, self.cached, self.ring = slots, positions, cached, config.window or 0
        self.slack = ring_slack(config, drafted)

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim = config.heads, config.head_dim
        cache = (config.layers, slots, heads, cached, head_dim)
        self.caches = SlotCaches(cache, dtype, device, precision)
        self.keys, self.values = self.caches.keys, self.caches.values
        self.rotary = Rotary(config, positions, rotary_dtype, dtype, device)
        written = positions + POSITIONS_STEP  # the last token is written one past the last position
        self.tokens = zeros(slots, written, dtype=torch.int32)
        self.states = zeros(slots, decode_state.SIZE, dtype=torch.int32)
        self.states[:, decode_state.DONE] = 1
        turns = 2 * MOST_ROWS if drafted else 2
        self._matched = zeros(slots, turns, written, dtype=torch.int32)

        self.drafts: Drafts | None = None
        if drafted:
            texts = self.tokens if own_text else zeros(slots, MOST_DRAFTED, dtype=torch.int32)
            self.drafts = texts, zeros(slots, DRAFT_SIZE, dtype=torch.int32)
        self.own_text = drafted and own_text
        splits = self.launches.splits_for(slots, heads)
        rows = BatchRows(config, slots * turns // 2, splits, dtype, device)
        self.rows = {each: rows.first(slots * each) for each in ((1, *PASS_ROWS) if drafted else (1,))}
        """Buffers by number of rows a slot."""
        self._first_logits = zeros(1, config.vocab_size)
        gate_up, down = grouped_launches(
            slots * config.experts_per_token, config.routed_experts, dtype, device
        )
        self._gate_up_launch = self.launches.gate_up or gate_up
        self._down_launch = self.launches.down or down
        self._at_once: dict[tuple[int, ...], bool] = {}
        self._tiles: dict[int, Tiles] = {}
        self._side = SideStream(device)

    @property
    def device(self) -> torch.device:
        return self.states.device

    @property
    def logits(self) -> Tensor:
        """Logits (S, V) of the last one-row step, -inf where banned; undefined in finished slots."""
        return self.rows[1].logits

    def fits(self, prompt: int, limit: int) -> bool:
        """Tell whether a page with that prompt and token limit fits into a slot."""
        cached = KvCache.positions(self.config, prompt, limit) + self.slack
        return prompt + limit <= self.positions and cached <= self.cached

    def cache_of(self, slot: int) -> KvCache:
        """Empty part of the cache for a prefill. The slot must have finished."""
        return self.caches.of_slot(slot)

    def begin(
        self,
        slot: int,
        prompt_ids: tuple[int, ...],
        limit: int,
        ngram: NgramPolicy | int,
        draft: Sequence[int] = (),
    ) -> None:
        """Set the page of a slot. Only queues work. Raises ValueError when it does not fit."""
        count = len(prompt_ids)
        policy = NgramPolicy.of(ngram)
        if count < 1 or limit < 1:
            raise ValueError(f"{count} tokens, limit {limit}: nothing to decode")
        if not self.fits(count, limit):
            raise ValueError(f"{count} + {limit} tokens do not fit a slot of {self.positions} positions")
        row = decode_state.state_row(count - 1, count - 1 + limit, 0, policy, first_new=count)
        state = torch.tensor(row, dtype=torch.int32)
        host = torch.cat([_prompt_rows(prompt_ids, policy.size), state])
        if self.device.type == "cuda":
            host = host.pin_memory()  # pinned: other memory would make the copy wait
        self.tokens[slot, :count].copy_(host[:count], non_blocking=True)
        # The row of the step before the first, whose current token is the prompt's last.
        before = (count - 2) % self._matched.shape[1]
        self._matched[slot, before, : count - 1].copy_(host[count : 2 * count - 1], non_blocking=True)
        self.states[slot].copy_(host[2 * count - 1 :], non_blocking=True)
        if self.drafts is not None:
            rows = draft_rows(draft, count, self.config.vocab_size)
            for tensor, values in zip(self.drafts, rows, strict=True):
                values = values.pin_memory() if self.device.type == "cuda" else values
                tensor[slot, : len(values)].copy_(values, non_blocking=True)

    def first(self, slot: int, logits: Tensor) -> None:
        """Choose the first token from the prefill's `logits` (V,). Only queues work."""
        one = slice(slot, slot + 1)
        self._first_logits.copy_(logits[None])
        tokens, states, matched = self.tokens[one], self.states[one], self._matched[one]
        best = self.rows[1].best_logit[one], self.rows[1].best_token[one]
        kernels, at = self.kernels, self.launches
        kernels(ban_repeats)(tokens, states, matched, self._first_logits, at.rows)
        kernels(best_of_parts)(self._first_logits, states, *best, at.best)
        kernels(take_best_rows)(*best, tokens, states, self.eos_token_id, self.config.vocab_size, at.small)

    def run(self, rows: int = 1) -> None:
        """Feed each live slot's current token and `rows` - 1 drafted ones. Append the tokens that follow."""
        for _, launch in self.parts(rows):
            launch()

    def parts(self, rows: int = 1) -> Iterator[Named]:
        """Every launch of a step in order, with its name."""
        at, use, weights, b = self.launches, self.kernels, self.weights, self.rows[rows]
        tokens, states, best = self.tokens, self.states, (b.best_logit, b.best_token)
        if self.own_text:
            yield "own text", self._draft_own_text
        drafts = self.drafts if rows > 1 else None
        yield "embed", partial(use(embed_rows), tokens, states, drafts, weights.embedding, b.x, at.rows)
        yield "norm", self._norm(b, weights.layers[0].attention_norm)
        gains = [layer.attention_norm for layer in weights.layers[1:]] + [weights.norm]
        for number, (layer, following) in enumerate(zip(weights.layers, gains, strict=True)):
            yield from self._attention(b, number, layer)
            yield "norm", self._norm(b, layer.norm, added=b.added)
            yield from self._mlp(b, layer)
            experts = {} if layer.experts is None else {"routed": b.routed, "weights": b.weights}
            yield "norm", self._norm(b, following, added=b.added, **experts)
        yield "head", self._product(b.y, weights.head, b.logits)
        yield "rule", partial(use(ban_repeats), tokens, states, self._matched, b.logits, at.rows)
        yield "best", partial(use(best_of_parts), b.logits, states, *best, at.best)
        ids = self.eos_token_id, self.config.vocab_size
        if self.drafts is None:
            yield "take", partial(use(take_best_rows), *best, tokens, states, *ids, at.small)
        else:
            yield "take", partial(use(accept), best, tokens, states, self.drafts, ids, at.accept)

    def _draft_own_text(self) -> None:
        """Make each slot's tokens up to the current one its draft."""
        assert self.drafts is not None
        torch.add(self.states[:, decode_state.POSITION], 1, out=self.drafts[1][:, LENGTH])

    def _norm(self, b: BatchRows, gain: Tensor, **parts: Tensor) -> Callable[[], None]:
        """Add the parts of the block's output to x, and write the norm of x to y."""
        return partial(self.kernels(add_and_norm), b.x, gain, b.y, self.config.rms_norm_eps, **parts)

    def _attention(self, b: BatchRows, number: int, layer: LayerWeights) -> Iterator[Named]:
        at, use, states = self.launches, self.kernels, self.states
        cache = self.keys[number], self.values[number]  # (S, h, P, D)
        turns, scales = (self.rotary.cos, self.rotary.sin), self.caches.of_layer(number)
        yield "qkv", self._product(b.y, layer.qkv, b.qkv)
        ring = self.ring + self.slack
        yield "rotary", partial(
            use(rotary_rows), b.qkv, *turns, states, b.q, *cache, at.small, ring, scales
        )  # fmt: skip
        yield "attention", partial(
            use(attend_rows), b.q, *cache, states, b.partial, b.log_sums, at.attention, at.stages, self.ring,
            scales, self.slack,
        )  # fmt: skip
        yield "join", partial(use(join_rows), b.partial, b.log_sums, b.mixed, at.small)
        yield "output", self._product(b.mixed, layer.o, b.added)

    def _mlp(self, b: BatchRows, layer: LayerWeights) -> Iterator[Named]:
        at, use, routed = self.launches, self.kernels, layer.experts
        if routed is None:
            yield "dense gate/up", self._product(b.y, layer.wide, b.dense_wide)
            yield "gated", partial(use(gated_rows), b.dense_wide, 0, b.dense, at.rows)
            yield "dense down", self._product(b.dense, layer.down, b.added)
            return
        experts, scaling = self.config.routed_experts, self.config.routed_scaling_factor
        yield "router, shared gate/up", self._product(b.y, layer.wide, b.wide)
        yield "route", partial(
            use(route_rows), b.wide, experts, self.states, b.chosen, b.weights, scaling, at.rows
        )  # fmt: skip
        yield "order", partial(use(order_by_expert), b.chosen, b.order, b.starts)
        gate_up, down = self._tiles_for(b, routed)
        shared_down = self._product(b.shared, layer.down, b.added)

        def shared() -> None:
            use(gated_rows)(b.wide, experts, b.shared, at.rows)
            shared_down()

        gate_and_up = partial(
            use(grouped_gate_up), b.y, b.order, b.starts, routed.gate, routed.up, b.gated, gate_up
        )
        yield "experts gate/up, shared down", partial(self._side.overlap, shared, gate_and_up)
        yield "experts down", partial(
            use(grouped_down), b.gated, b.order, b.starts, routed.down, b.routed, down
        )  # fmt: skip

    def _product(self, x: Tensor, weight: Tensor, out: Tensor) -> Callable[[], None]:
        """Product of (R, K) and (M, K), written to (R, M)."""
        rows = self.slots if len(x) == self.slots or not self._alike_at_once(x, weight) else len(x)
        parts = list(zip(torch.split(x, rows), torch.split(out, rows), strict=True))

        def run() -> None:
            for some, theirs in parts:
                torch.mm(some, weight.t(), out=theirs)

        return run

    def _alike_at_once(self, x: Tensor, weight: Tensor) -> bool:
        shape = (len(x), *weight.shape)
        if self.device.type == "cuda" and shape not in self._at_once:
            self._at_once[shape] = _same_bits_at_once(x, weight, self.slots)
        return self._at_once.get(shape, False)

    def _tiles_for(self, b: BatchRows, experts: Experts) -> Tiles:
        """Tiles for the experts: larger ones for several rows where they give the same bits."""
        own, chosen = (self._gate_up_launch, self._down_launch), self.config.experts_per_token
        if len(b.x) == self.slots or self.device.type != "cuda":
            return own
        if len(b.x) not in self._tiles:
            wider = grouped_launches(b.order.numel(), self.config.routed_experts, b.y.dtype, self.device)
            alike = _same_bits_in_tiles(b.y, chosen, experts, own, wider)
            if alike is None:
                return own  # compared at the first use
            self._tiles[len(b.x)] = wider if alike else own
        return self._tiles[len(b.x)]


@lru_cache(maxsize=64)
def _prompt_rows(prompt_ids: tuple[int, ...], size: int) -> Tensor:
    """A prompt (N,) and after it the match lengths of all but its last token, int32.

    Pages of one shape share it: computed anew it holds up the thread that queues the device's work.
    """
    ids = torch.tensor(prompt_ids, dtype=torch.int32)
    return torch.cat([ids, matched_at_start(ids[:-1], size)])


# Which kernel the library takes follows from a product's shapes, and a larger tile of experts may sum alike.
# Neither is promised, so both are tried on random rows before they are used.


def _same_bits_at_once(x: Tensor, weight: Tensor, at_once: int) -> bool:
    """Tell whether the product of `x` (R, K) and `weight` (M, K) has the bits of `at_once` rows at a time."""
    tried = _random(x)
    apart = torch.cat([torch.mm(some, weight.t()) for some in torch.split(tried, at_once)])
    return torch.equal(torch.mm(tried, weight.t()), apart)


def _same_bits_in_tiles(y: Tensor, chosen: int, experts: Experts, one: Tiles, other: Tiles) -> bool | None:
    """Tell whether rows `y` (R, C), sent to their `chosen` experts, get the same bits from both tiles.

    None while kernels are compiled and not run (`kernels.compile`): nothing is written to compare.
    """
    count, inner, width = len(y) * chosen, experts.gate.shape[1], y.shape[1]
    generator = torch.Generator(y.device).manual_seed(1)
    ranks = torch.rand(len(y), len(experts.gate), generator=generator, device=y.device)
    order = torch.empty(count, dtype=torch.int32, device=y.device)
    starts = torch.empty(len(experts.gate) + 1, dtype=torch.int32, device=y.device)
    order_by_expert(ranks.topk(chosen, dim=1).indices.to(torch.int32), order, starts)
    found = []
    for gate_up, down in (one, other):
        gated, routed = y.new_zeros(count, inner), y.new_zeros(len(y), chosen, width)
        grouped_gate_up(_random(y), order, starts, experts.gate, experts.up, gated, gate_up)
        grouped_down(gated, order, starts, experts.down, routed, down)
        found.append((gated, routed))
    if not found[0][1].any():
        return None
    return all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def _random(like: Tensor) -> Tensor:
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.empty_like(like).normal_(generator=generator)
