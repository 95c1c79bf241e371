"""One decode step: the kernels of one token in their order, over buffers that never move.

Letters: L layers, h heads, P positions the cache holds, D head dim, S splits, V vocabulary.

With a window the cache is a prompt and a ring, in which a token's slot follows from its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dsocr_core.engine.fast.weights import DecoderWeights, LayerWeights
from dsocr_core.kernels import state as decode_state
from dsocr_core.kernels.decode.attention_output import attention_output
from dsocr_core.kernels.decode.dense_gate_up import dense_gate_up
from dsocr_core.kernels.decode.embed_token import NEVER, embed_token, matched_at_start
from dsocr_core.kernels.decode.expert_down import dense_down, mixture_down
from dsocr_core.kernels.decode.expert_gate_up import gate_up
from dsocr_core.kernels.decode.head_bounds import bound_rows, split_vector
from dsocr_core.kernels.decode.lm_head import best_of_bounded, take_best
from dsocr_core.kernels.decode.qkv_rotary import qkv_rotary
from dsocr_core.kernels.decode.router import route
from dsocr_core.kernels.decode.split_attention import split_attention
from dsocr_core.kernels.launch import Launch, may_overlap, row_programs, unready
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig
from dsocr_core.reading.records import NgramPolicy


@dataclass(frozen=True)
class StepLaunches:
    """Block sizes of every kernel by name, which kernels are `early`, and how attention is split.

    The defaults were measured fastest on an H200 at the published sizes (`docs/performance.md`). `splits` are
    the most parts of attention. `tiles` of `split_attention.rows` positions are read at once.
    """

    embed_token: Launch = field(default=Launch(512))
    qkv_rotary: Launch = field(default=Launch(8, early=True))
    split_attention: Launch = field(default=Launch(64, warps=8, early=True))
    attention_output: Launch = field(default=Launch(16))
    dense_gate_up: Launch = field(default=Launch(8, early=True))
    dense_down: Launch = field(default=Launch(4, early=True))
    route: Launch = field(default=Launch(1, warps=8))
    gate_up: Launch = field(default=Launch(4, programs=528))
    mixture_down: Launch = field(default=Launch(4, early=True))
    split_vector: Launch = field(default=Launch(1, early=True))
    bound_rows: Launch = field(default=Launch(32, early=True, programs=396))
    best_of_bounded: Launch = field(default=Launch(16, programs=264))
    take_best: Launch = field(default=Launch(512, early=True))
    splits: int = 8
    tiles: int = 4

    @property
    def positions_at_once(self) -> int:
        """Positions that a program of attention reads at once."""
        return self.tiles * self.split_attention.rows

    def of(self, kernel: str) -> Launch:
        """Launch of a kernel, by its name in `DecodeStep.kernels`."""
        return getattr(self, kernel)

    def read_before_wait(self) -> dict[str, tuple[str, ...]]:
        """For `launch.unready`: by kernel, the kernels whose outputs it reads before its wait."""
        return {
            "qkv_rotary": ("take_best",),
            "split_attention": ("take_best",),
            "attention_output": ("take_best",),
            "gate_up": ("attention_output",),
            "mixture_down": ("route",),
            "bound_rows": ("embed_token", "take_best"),
            "best_of_bounded": ("take_best",),
        }

    def with_dependent(self, dependent: bool) -> StepLaunches:
        """Copy with programmatic dependent launch on or off for every kernel."""
        changes: dict[str, Any] = {
            name: replace(value, dependent=dependent)
            for name, value in vars(self).items()
            if isinstance(value, Launch)
        }
        return replace(self, **changes)


def launches_for(device: torch.device) -> StepLaunches:
    """Launches for a device: the defaults, with dependent launch from Hopper on."""
    return StepLaunches().with_dependent(may_overlap(device))


Named = tuple[str, Callable[[], None]]
"""Name of a kernel and its launch."""

MATCHED_ROWS = 64
"""Rows of `matched` (n-gram rule), used in turn by position. Two are enough; figures are of these."""


class DecodeStep:
    """Weights, caches and buffers of one sequence at a time, and `run()`, which may be captured."""

    def __init__(
        self,
        weights: DecoderWeights,
        config: DecoderConfig,
        positions: int,
        rotary_dtype: torch.dtype,
        eos_token_id: int,
        launches: StepLaunches | None = None,
        cached: int | None = None,
    ) -> None:
        """Step for sequences of `positions`; with a window the cache has room for `cached` of them."""
        dtype, device = weights.embedding.dtype, weights.embedding.device
        self.weights, self.config, self.eos_token_id = weights, config, eos_token_id
        self.launches = launches or launches_for(device)
        self.positions, self.ring = positions, config.window or 0
        self.cache = KvCache(config, cached or positions, dtype, device)
        self.rotary = Rotary(config, positions, rotary_dtype, dtype, device)

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim, splits = config.heads, config.head_dim, self.launches.splits
        self.tokens = zeros(positions + 1, dtype=torch.int32)
        self.logits = zeros(positions + 1, dtype=torch.float32)
        self.state = zeros(decode_state.SIZE, dtype=torch.int32)
        self.state[decode_state.DONE] = 1
        self.matched = zeros(MATCHED_ROWS, positions + 1, dtype=torch.int32)
        self._banned_at = zeros(config.vocab_size, dtype=torch.int32)
        self._x = zeros(config.hidden_size)
        self._q = zeros(heads, head_dim)
        self._partial = zeros(splits, heads, head_dim, dtype=torch.float32)
        self._log_sums = zeros(splits, heads, dtype=torch.float32)
        self._expert_ids = zeros(config.experts_per_token, dtype=torch.int32)
        self._expert_weights = zeros(config.experts_per_token, dtype=torch.float32)
        self._routed = zeros(config.experts_per_token, config.moe_intermediate_size)
        self._shared = zeros(config.shared_width)
        self._dense = zeros(config.intermediate_size)
        self._normed = zeros(config.hidden_size)
        self._planes = zeros(2, config.hidden_size, dtype=torch.int8)
        self._sizes = zeros(2, dtype=torch.float32)
        self._lower = zeros(row_programs(config.vocab_size, self.launches.bound_rows), dtype=torch.float32)
        self._upper = zeros(config.vocab_size, dtype=torch.float32)
        self.candidates = candidates = row_programs(config.vocab_size, self.launches.best_of_bounded)
        self._best_logit = zeros(candidates, dtype=torch.float32)
        self._best_token = zeros(candidates, dtype=torch.int32)
        order = [(name, self.launches.of(name)) for name, _ in self.kernels()]
        for kernel, writer in unready(order, self.launches.read_before_wait()):
            raise ValueError(f"{kernel} may start before {writer} has ended: a kernel between is early")

    @property
    def device(self) -> torch.device:
        return self.state.device

    def fits(self, positions: int, cached: int) -> bool:
        """Tell whether that many positions fit, of which `cached` are cached."""
        return positions <= self.positions and cached <= self.cache.capacity

    def begin(self, tokens: tuple[int, ...], limit: int, ngram: NgramPolicy | int) -> None:
        """Start after a prefill. `tokens` are the prompt and the first new one, `limit` the most new ones."""
        self.begin_with(tokens[:-1], torch.tensor(tokens[-1], device=self.device), limit, ngram)

    def begin_with(
        self, prompt_ids: tuple[int, ...], first: Tensor, limit: int, ngram: NgramPolicy | int
    ) -> None:
        """`begin` with a first token () that only the device has. Raises ValueError where it does not fit."""
        count, policy = len(prompt_ids), NgramPolicy.of(ngram)
        last = count - 1 + limit
        if count < 1 or limit < 1:
            raise ValueError(f"{count + 1} tokens, limit {limit}: nothing to decode")
        cached = KvCache.positions(self.config, count, limit - 1)  # the last token is never fed back
        if not self.fits(last, cached):
            raise ValueError(f"{last} positions do not fit a cache of {self.cache.capacity}")
        ids = torch.tensor(prompt_ids, dtype=torch.int32)
        self.upload(self.tokens[:count], ids)
        self.tokens[count].copy_(first)
        # The row of the step before the first: the prompt alone.
        self.upload(self.matched[(count - 1) % MATCHED_ROWS, :count], matched_at_start(ids, policy.size))
        self._banned_at.fill_(NEVER)
        row = decode_state.state_row(count, last, int(limit == 1), policy, first_new=count)
        self.upload(self.state, torch.tensor(row, dtype=torch.int32))
        self.state[decode_state.DONE] |= first == self.eos_token_id

    def upload(self, target: Tensor, values: Tensor) -> None:
        """Copy values to the device through pinned memory, so that the copy does not wait."""
        target.copy_(values.pin_memory() if self.device.type == "cuda" else values, non_blocking=True)

    def run(self) -> None:
        """Feed the current token and append the next one."""
        for _, launch in self.kernels():
            launch()

    def kernels(self) -> Iterator[Named]:
        """Every launch of a step in order, with its kernel's name."""
        weights, eps, state = self.weights, self.config.rms_norm_eps, self.state
        banned = self._banned_at
        yield self._launch(embed_token, self.tokens, state, weights.embedding, self._x, self.matched, banned)
        for number, layer in enumerate(weights.layers):
            yield from self._attention(number, layer)
            yield from self._mlp(layer)
        planes = self._planes, self._sizes
        bounds = self._lower, self._upper
        yield self._launch(split_vector, self._x, weights.norm, self._normed, *planes, eps)
        yield self._launch(
            bound_rows, weights.rounded_head, *planes, banned, state, *bounds, weights.head.dtype
        )
        best = self._best_logit, self._best_token
        yield self._launch(best_of_bounded, self._normed, weights.head, banned, state, *bounds, *best)
        ids = self.eos_token_id, self.config.vocab_size
        yield self._launch(take_best, *best, self.tokens, self.logits, state, *ids)

    def _attention(self, number: int, layer: LayerWeights) -> Iterator[Named]:
        at, ring, parts = self.launches, self.ring, (self._partial, self._log_sums)
        cache = self.cache.keys[number, 0], self.cache.values[number, 0]  # (h, P, D)
        yield self._launch(
            qkv_rotary, self._x, layer.attention_norm, *layer.qkv_parts, self.rotary.cos, self.rotary.sin,
            self.state, self._q, *cache, self.config.rms_norm_eps, ring=ring,
        )  # fmt: skip
        yield self._launch(split_attention, self._q, *cache, self.state, *parts, at.tiles, ring=ring)
        yield self._launch(
            attention_output, *parts, layer.o, self._x, self.state, at.positions_at_once, ring=ring
        )

    def _mlp(self, layer: LayerWeights) -> Iterator[Named]:
        """Launches of the feed-forward. The router comes first, while the shared weights load."""
        routed, eps, (gate, up) = layer.experts, self.config.rms_norm_eps, layer.gate_up.chunk(2)
        if routed is None:
            yield self._launch(dense_gate_up, self._x, layer.norm, gate, up, self._dense, eps)
            yield self._launch(dense_down, self._dense, layer.down, self._x)
            return
        ids, weights, scaling = self._expert_ids, self._expert_weights, self.config.routed_scaling_factor
        yield self._launch(route, self._x, layer.norm, layer.router, ids, weights, eps, scaling)
        read, written = (gate, up, routed.gate, routed.up), (self._shared, self._routed)
        yield self._launch(gate_up, self._x, layer.norm, ids, *read, *written, eps)
        yield self._launch(
            mixture_down, self._routed, self._shared, ids, weights, routed.down, layer.down, self._x
        )

    def _launch(self, kernel: Callable[..., None], *given: Any, **more: Any) -> Named:
        name = kernel.__name__
        return name, partial(kernel, *given, launch=self.launches.of(name), **more)
