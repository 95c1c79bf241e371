"""One pass over K rows of a page: the current token and what its draft says comes next.

Letters: K rows, L layers, h heads, P positions the cache holds, D head dim, S splits, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dsocr_core.engine.fast.packed import LayerWeights
from dsocr_core.engine.fast.step import MATCHED_ROWS, DecodeStep
from dsocr_core.kernels.decode.embed_token import NEVER
from dsocr_core.kernels.decode.expert_down import dense_down, mixture_down
from dsocr_core.kernels.decode.head_bounds import split_vector
from dsocr_core.kernels.decode.lm_head import best_of_bounded
from dsocr_core.kernels.decode.router import route
from dsocr_core.kernels.decode.split_attention import split_attention
from dsocr_core.kernels.launch import Launch, chunk_width, row_blocks, unready
from dsocr_core.kernels.verify import draft as draft_kernels
from dsocr_core.kernels.verify.bounds import bound_all_rows
from dsocr_core.kernels.verify.draft import accept, embed_draft
from dsocr_core.kernels.verify.gate_up import dense_gate_up_rows, mixture_gate_up_rows
from dsocr_core.kernels.verify.products import join_rows, norm_rows, output_rows, qkv_rows

MOST_ROWS = 32
MOST_DRAFTED = 16384
"""Tokens of a draft that the device holds; the rest is left out."""


@dataclass(frozen=True)
class PassLaunches:
    """Block sizes of the kernels that only a pass has; the others are the decode step's.

    `norm_rows` has the warps of the one-row kernels that norm for themselves: they decide its sum's order.
    """

    embed_draft: Launch = field(default=Launch(512))
    norm_rows: Launch = field(default=Launch(1, early=True))
    qkv_rows: Launch = field(default=Launch(4, early=True))
    join_rows: Launch = field(default=Launch(1))
    output_rows: Launch = field(default=Launch(4, early=True))
    dense_gate_up_rows: Launch = field(default=Launch(4, early=True))
    gate_up_rows: Launch = field(default=Launch(4))
    bound_all_rows: Launch = field(default=Launch(128, warps=8))
    accept: Launch = field(default=Launch(512, warps=8))

    @classmethod
    def beside(cls, step: DecodeStep) -> PassLaunches:
        """Launches under which every sum has the order that it has in that step.

        Where a row fills a warp, any number of rows and warps gives that order; else the step's own does.
        """
        at, config = step.launches, step.config
        widths = (config.hidden_size, config.heads * config.head_dim)
        fills = step.weights.embedding.dtype == torch.bfloat16 and all(chunk_width(w) == 256 for w in widths)
        same = cls() if fills else cls(
            qkv_rows=at.qkv_rotary, output_rows=at.attention_output, dense_gate_up_rows=at.dense_gate_up,
            gate_up_rows=replace(at.gate_up, early=False),
        )  # fmt: skip
        return same.with_dependent(at.qkv_rotary.dependent)

    def with_dependent(self, dependent: bool) -> PassLaunches:
        """The same with programmatic dependent launch on or off everywhere."""
        return PassLaunches(**{name: replace(at, dependent=dependent) for name, at in vars(self).items()})


NEEDS = {
    "qkv_rows": ("accept",), "split_attention": ("accept",), "join_rows": ("accept",),
    "gate_up_rows": ("norm_rows", "mixture_down"), "mixture_down": ("route",),
    "bound_all_rows": ("accept",), "best_of_bounded": ("accept",),
}  # fmt: skip
"""Writers of what a kernel reads before its wait, weights aside, for `launch.unready`."""


def draft_rows(tokens: Sequence[int], first_new: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """A draft and its state as the device has them, on the host: int32.

    Its first token is for the position `first_new`. Ids outside the vocabulary propose nothing.
    """
    held = torch.tensor(tokens[:MOST_DRAFTED], dtype=torch.int64)
    held[(held < 0) | (held >= vocabulary)] = draft_kernels.NOTHING
    row = torch.zeros(draft_kernels.DRAFT_SIZE, dtype=torch.int32)
    row[draft_kernels.SHIFT], row[draft_kernels.LENGTH] = -first_new, len(held)
    return held.to(torch.int32), row


class PageDraft:
    """A page's draft on the device and the stamps of its rows, shared by passes of any K."""

    def __init__(self, step: DecodeStep) -> None:
        self._step = step
        self.tokens = torch.zeros(MOST_DRAFTED, dtype=torch.int32, device=step.device)
        self.state = torch.zeros(draft_kernels.DRAFT_SIZE, dtype=torch.int32, device=step.device)
        vocabulary = step.config.vocab_size
        self.banned_at = torch.empty(MOST_ROWS, vocabulary, dtype=torch.int32, device=step.device)

    def begin(self, tokens: Sequence[int], first_new: int) -> None:
        """Start a page whose first new token has the position `first_new`. Queues work, waits for nothing."""
        held, row = draft_rows(tokens, first_new, self._step.config.vocab_size)
        self._step.upload(self.tokens[: len(held)], held)
        self._step.upload(self.state, row)
        self.banned_at.fill_(NEVER)

    def shift(self, by: int) -> None:
        """Move the draft's place: its token for position j becomes its number j + `by`."""
        self._set(draft_kernels.SHIFT, by)

    def copy_own(self, first_new: int, known: int, most: int) -> None:
        """Draft what the page itself has said: the `known` first new tokens, of at most so many there are.

        Tokens that the host does not know yet are left out: the newest would be found as their own place.
        """
        most = min(most, MOST_DRAFTED)
        self.tokens[:most].copy_(self._step.tokens[first_new : first_new + most])
        self._set(draft_kernels.LENGTH, min(known, MOST_DRAFTED))

    def _set(self, place: int, value: int) -> None:
        self._step.upload(self.state[place : place + 1], torch.tensor([value], dtype=torch.int32))


class DraftPass:
    """Buffers of K rows over a decode step's weights, cache and state; `run()` appends 1 to K tokens."""

    def __init__(
        self, step: DecodeStep, draft: PageDraft, rows: int, launches: PassLaunches | None = None
    ) -> None:
        if rows not in (2, 4, 8, 16, MOST_ROWS) or rows >= MATCHED_ROWS:
            raise ValueError(f"a pass of {rows} rows: 2, 4, 8, 16 or {MOST_ROWS}")
        if step.ring and step.spare < rows - 1:
            raise ValueError(f"a pass of {rows} rows overwrites what a ring with {step.spare} to spare holds")
        self._step, self._draft, self.rows = step, draft, rows
        self._at = launches or PassLaunches.beside(step)
        self._same = step.launches
        config, dtype = step.config, step.weights.embedding.dtype

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros((rows, *shape), dtype=dtype, device=step.device)

        heads, head_dim, splits = config.heads, config.head_dim, step.launches.splits
        self._x, self._y, self._normed = (zeros(config.hidden_size) for _ in range(3))
        self._q, self._mixed = zeros(heads, head_dim), zeros(heads * head_dim)
        self._partial = zeros(splits, heads, head_dim, dtype=torch.float32)
        self._log_sums = zeros(splits, heads, dtype=torch.float32)
        self._expert_ids = zeros(config.experts_per_token, dtype=torch.int32)
        self._expert_weights = zeros(config.experts_per_token, dtype=torch.float32)
        self._routed = zeros(config.experts_per_token, config.moe_intermediate_size)
        self._shared, self._dense = zeros(config.shared_width), zeros(config.intermediate_size)
        self._planes = zeros(2, config.hidden_size, dtype=torch.int8)
        self._sizes = zeros(2, dtype=torch.float32)
        self._lower = zeros(row_blocks(config.vocab_size, self._at.bound_all_rows), dtype=torch.float32)
        self._upper = zeros(config.vocab_size, dtype=torch.float32)
        self._best = tuple(zeros(step.candidates, dtype=kind) for kind in (torch.float32, torch.int32))
        order = [(name, self._launch(name)) for name, _ in self.kernels()]
        for kernel, writer in unready(order, NEEDS):
            raise ValueError(f"{kernel} may start before {writer} has ended: a kernel between is early")

    @property
    def device(self) -> torch.device:
        return self._step.device

    def _launch(self, kernel: str) -> Launch:
        launch: Launch = getattr(self._at if hasattr(self._at, kernel) else self._same, kernel)
        return launch

    def run(self) -> None:
        """Feed the current token and the draft's, and append what they agree on and one more."""
        for _, launch in self.kernels():
            launch()

    def kernels(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every launch of a pass in order, by its kernel's name."""
        step, draft, at, weights = self._step, self._draft, self._at, self._step.weights
        banned_at, eps = draft.banned_at[: self.rows], step.config.rms_norm_eps
        yield (
            "embed_draft",
            lambda: embed_draft(
                step.tokens, step.state, draft.tokens, draft.state, weights.embedding, self._x,
                (step.matched, banned_at), at.embed_draft,
            ),
        )  # fmt: skip
        for number, layer in enumerate(weights.layers):
            yield from self._attention(number, layer)
            yield from self._mlp(layer)
        yield (
            "split_vector",
            lambda: split_vector(
                self._x, weights.norm, self._normed, self._planes, self._sizes, eps, self._same.split_vector
            ),
        )
        yield (
            "bound_all_rows",
            lambda: bound_all_rows(
                weights.rounded_head, self._planes, self._sizes, banned_at, step.state,
                (self._lower, self._upper), weights.head.dtype, at.bound_all_rows,
            ),
        )  # fmt: skip
        best_logit, best_token = self._best
        yield (
            "best_of_bounded",
            lambda: best_of_bounded(
                self._normed, weights.head, banned_at, step.state, self._lower, self._upper, best_logit,
                best_token, self._same.best_of_bounded,
            ),
        )  # fmt: skip
        yield (
            "accept",
            lambda: accept(
                (best_logit, best_token), step.tokens[None], step.logits[None], step.state[None],
                (draft.tokens[None], draft.state[None]), (step.eos_token_id, step.config.vocab_size),
                at.accept,
            ),
        )  # fmt: skip

    def _normed_rows(self, gain: Tensor) -> tuple[str, Callable[[], None]]:
        eps = self._step.config.rms_norm_eps
        return "norm_rows", lambda: norm_rows(self._x, gain, self._y, eps, self._at.norm_rows)

    def _attention(self, number: int, layer: LayerWeights) -> Iterator[tuple[str, Callable[[], None]]]:
        step, at, same, weights = self._step, self._at, self._same, layer.attention
        keys, values = step.cache.keys[number, 0], step.cache.values[number, 0]  # (h, P, D)
        yield self._normed_rows(weights.norm)
        yield (
            "qkv_rows",
            lambda: qkv_rows(
                self._y, (weights.q, weights.k, weights.v), (step.rotary.cos, step.rotary.sin), step.state,
                self._q, (keys, values), at.qkv_rows, step.ring + step.spare,
            ),
        )  # fmt: skip
        yield (
            "split_attention",
            lambda: split_attention(
                self._q, keys, values, step.state, self._partial, self._log_sums, same.tiles,
                same.split_attention, step.ring, step.spare,
            ),
        )  # fmt: skip
        yield (
            "join_rows",
            lambda: join_rows(
                self._partial, self._log_sums, self._mixed, step.state, same.positions_at_once, at.join_rows,
                step.ring,
            ),
        )  # fmt: skip
        yield "output_rows", lambda: output_rows(self._mixed, weights.o, self._x, at.output_rows)

    def _mlp(self, layer: LayerWeights) -> Iterator[tuple[str, Callable[[], None]]]:
        same, shared, mixture = self._same, layer.shared, layer.mixture
        yield self._normed_rows(layer.norm)
        if mixture is None:
            yield (
                "dense_gate_up_rows",
                lambda: dense_gate_up_rows(
                    self._y, shared.gate, shared.up, self._dense, self._at.dense_gate_up_rows
                ),
            )
            yield "dense_down", lambda: dense_down(self._dense, shared.down, self._x, same.dense_down)
            return
        routed = mixture.routed
        yield (
            "route",
            lambda: route(
                self._x, layer.norm, mixture.router, self._expert_ids, self._expert_weights,
                self._step.config.rms_norm_eps, self._step.config.routed_scaling_factor, same.route,
            ),
        )  # fmt: skip
        yield (
            "gate_up_rows",
            lambda: mixture_gate_up_rows(
                self._y, self._expert_ids, (shared.gate, shared.up), (routed.gate, routed.up), self._shared,
                self._routed, self._at.gate_up_rows,
            ),
        )  # fmt: skip
        yield (
            "mixture_down",
            lambda: mixture_down(
                self._routed, self._shared, self._expert_ids, self._expert_weights, routed.down, shared.down,
                self._x, same.mixture_down,
            ),
        )  # fmt: skip
