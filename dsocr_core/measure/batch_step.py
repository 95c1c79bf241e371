"""Times the batch's decode step on a GPU, for tuning: no page, no prefill, random weights and caches.

    dsocr measure batch-step --config PATH --streams 256 --context 900 --tokens 1000 --sweep

Streams stand where a batch with continuous refill has them: their contexts spread evenly from `--context` to
`--context` + `--tokens`, the end token ignored. Prints the step recorded as a graph, with half and with all
slots finished; then each part by itself, all its launches of a step in a row, beside what it must read; of a
model with a window the step beside one of full attention, spread and with all streams at the end; with
`--sweep` other blocks, stages and splits of attention, other tiles of the experts and other numbers of
streams. What fails prints one line and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from dsocr_core.base.console import print_json
from dsocr_core.base.specs.kinds import Precision
from dsocr_core.engine.fast.batch_step import BatchLaunches, BatchStep
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.cuda_graph import record
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.prefill.grouped_experts import GroupedLaunch
from dsocr_core.kernels.state import DONE, state_row
from dsocr_core.measure.device import require_fast_engine_for
from dsocr_core.measure.rows import Rows, each
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import load_config
from dsocr_core.models.precision import position_bytes
from dsocr_core.reading.records import NgramPolicy

NGRAM_SIZE = 20
REPLAYS = 10
SPARE = 256
"""Positions behind the longest stream: more steps than are run here."""

LIVE = {"all live": slice(0), "every second live": slice(0, None, 2), "none live": slice(None)}
"""By name the slots that are finished."""

ATTENTION: tuple[tuple[int, int, int], ...] = (
    (16, 2, 2), (16, 2, 3), (16, 4, 1), (16, 4, 2), (16, 4, 3), (16, 4, 4),
    (32, 4, 1), (32, 4, 2), (32, 4, 3), (32, 4, 4), (32, 8, 2), (32, 8, 3),
    (64, 4, 1), (64, 8, 1), (64, 8, 2), (64, 8, 3), (128, 8, 1), (128, 8, 2),
)  # fmt: skip
"""Positions at a time, warps, stages."""

SPLITS = (1, 2, 4, 8, 16)
GATE_UP = (
    GroupedLaunch(16, 64, 128, 4, 3), GroupedLaunch(32, 64, 64, 4, 4), GroupedLaunch(32, 64, 128, 4, 2),
    GroupedLaunch(32, 64, 128, 4, 3), GroupedLaunch(32, 32, 128, 4, 4), GroupedLaunch(32, 32, 256, 4, 2),
    GroupedLaunch(32, 128, 64, 4, 4), GroupedLaunch(64, 64, 64, 4, 4),
)  # fmt: skip
DOWN = (
    GroupedLaunch(16, 64, 128, 4, 4), GroupedLaunch(32, 64, 64, 4, 4), GroupedLaunch(32, 64, 128, 4, 3),
    GroupedLaunch(32, 64, 128, 4, 4), GroupedLaunch(32, 32, 128, 4, 4), GroupedLaunch(32, 128, 128, 4, 3),
    GroupedLaunch(32, 128, 64, 4, 4), GroupedLaunch(64, 64, 128, 4, 3),
)  # fmt: skip
STREAMS = (32, 64, 128)


class BatchSteps:
    """Random weights, and steps in the middle of a long batch over them."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: BatchWeights,
        context: int,
        tokens: int,
        precision: Precision = "off",
    ) -> None:
        self.config, self.weights, self.context, self.tokens = config, weights, context, tokens
        self.precision = precision
        self.device = weights.embedding.device

    def step(self, streams: int, launches: BatchLaunches | None = None) -> BatchStep:
        """A step of that many streams, all of them live."""
        new = self.tokens + SPARE
        step = BatchStep(
            self.weights, self.config, streams, self.context + new, torch.bfloat16, NO_TOKEN, launches,
            held=KvCache.positions(self.config, self.context, new), precision=self.precision,
        )  # fmt: skip
        return self._filled(step)

    def full_step(self, streams: int) -> BatchStep:
        """The same without a window. All layers read one layer's caches, which the device's own cache is far
        too small for: as many bytes move as of caches of their own, which its memory is too small for.
        """
        step = self.step(streams)
        shape = (1, streams, self.config.heads, step.positions, self.config.head_dim)
        step.keys, step.values = (step.keys.new_empty(shape) for _ in "kv")
        self._filled(step)
        step.keys, step.values = (
            half.expand(self.config.layers, *shape[1:]) for half in (step.keys, step.values)
        )
        step.ring, step.held = 0, step.positions
        return step

    def _filled(self, step: BatchStep) -> BatchStep:
        generator = torch.Generator(self.device).manual_seed(0)
        for half in (step.keys, step.values):
            for layer in half:  # a layer at a time: less at once than the whole
                layer.copy_(torch.empty_like(layer, dtype=torch.bfloat16).normal_(generator=generator))
        ids = torch.randint(
            0, self.config.vocab_size, step.tokens.shape, generator=torch.Generator().manual_seed(0)
        )
        step.tokens.copy_(ids)
        self.spread(step)
        return step

    def spread(self, step: BatchStep, least: int = 0) -> None:
        """Every stream at its own context, evenly apart from `least` new tokens on, far from its last."""
        last, policy = step.positions - 1, NgramPolicy(NGRAM_SIZE)
        contexts = (self.context + torch.linspace(least, self.tokens, step.slots).int()).tolist()
        rows = [state_row(context, last, 0, policy, first_new=self.context) for context in contexts]
        states = torch.tensor(rows, dtype=torch.int32)
        step.states.copy_(states)

    def cache_bytes(self, streams: int, least: int = 0, full: bool = False) -> int:
        """Keys and values that a step reads, the streams at their contexts from `least` new tokens on."""
        config = replace(self.config, window=None) if full else self.config
        position = position_bytes(config, torch.bfloat16, self.precision)
        return position * streams * KvCache.positions(config, self.context, (least + self.tokens) // 2)

    def part_bytes(self, streams: int) -> dict[str, int]:
        """Count the bytes that all launches of a part must move in a step."""
        c, size = self.config, 2
        width, mixtures = c.hidden_size, c.layers - c.first_dense_layers
        routed = mixtures * c.routed_experts * c.moe_intermediate_size * width
        wide = c.routed_experts + 2 * c.shared_width
        rows = {
            "qkv": c.layers * 3 * width * width,
            "output": c.layers * width * width,
            "dense gate/up": c.first_dense_layers * 2 * c.intermediate_size * width,
            "dense down": c.first_dense_layers * c.intermediate_size * width,
            "router, shared gate/up": mixtures * wide * width,
            "experts gate/up, shared down": 2 * routed + mixtures * c.shared_width * width,
            "experts down": routed,
            "head": c.vocab_size * (width + streams),
            "best": c.vocab_size * streams,
        }
        return {name: count * size for name, count in rows.items()} | {"attention": self.cache_bytes(streams)}


def run(
    *,
    config: Path,
    streams: int = 256,
    context: int = 900,
    tokens: int = 1000,
    sweep: bool = False,
    cache: Literal["off", "fp8-v", "fp8-kv"] = "off",
) -> None:
    """Time the decode step of a batch on random weights, on a GPU.

    Args:
        config: config.json of the sizes to run
        streams: pages decoded together
        context: the shortest context
        tokens: how much longer the longest context is
        sweep: also try other blocks, tiles and streams
        cache: bits of the caches, as `--precision` has them
    """
    require_fast_engine_for("measure batch-step")
    device = torch.device("cuda")
    with torch.inference_mode():
        decoder = load_config(config).decoder
        weights = BatchWeights.of(PackedDecoder.of(random_decoder(decoder, device)))
        rows = Rows(device)
        steps = BatchSteps(decoder, weights, context, tokens, cache)
        with rows.attempt("whole step"):
            whole_step(rows, steps, streams)
        with rows.attempt("parts"):
            by_part(rows, steps, streams)
        full_over_window = {}
        if decoder.window:
            with rows.attempt("full attention"):
                full_over_window = against_full(rows, steps, streams)
        if sweep:
            with rows.attempt("sweep"):
                variants(rows, steps, streams)
            for fewer in STREAMS:
                with rows.attempt(f"{fewer} streams"):
                    whole_step(rows, steps, fewer)
    print_json(
        rows.document(streams=streams, context=context, tokens=tokens, full_over_window=full_over_window)
    )


def random_decoder(config: DecoderConfig, device: torch.device) -> Decoder:
    """Random weights scaled by fan-in; the towers are no part of a step."""
    with torch.device("meta"):
        decoder = Decoder(config).to(torch.bfloat16)
    decoder.to_empty(device=device).requires_grad_(False)
    generator = torch.Generator(device).manual_seed(0)
    for parameter in decoder.parameters():
        parameter.normal_(generator=generator)
        if parameter.ndim > 1:
            parameter.mul_(parameter.shape[-1] ** -0.5)
        else:
            parameter.mul_(0.05).add_(1.0)
    return decoder


def whole_step(rows: Rows, steps: BatchSteps, streams: int) -> None:
    """Time the step as a graph; then with every second slot finished, then with all."""
    step = steps.step(streams)
    graph = record(step.run, steps.device)
    cache = steps.cache_bytes(streams)
    size = steps.weights.bytes_a_step() + cache
    held = torch.cuda.memory_allocated() / 1e9
    contexts = f"{steps.context} to {steps.context + steps.tokens}"
    rows.table(
        f"{streams} streams, contexts {contexts}: {size / 1e9:.2f} GB, {cache / 1e9:.2f} of them caches; "
        f"{sum(1 for _ in step.parts())} launches, {held:.1f} GB held"
    )
    for name, finished in LIVE.items():
        steps.spread(step)
        step.states[finished, DONE] = 1
        live = streams - len(range(streams)[finished])

        def note(ms: float, live: int = live) -> str:
            words = f"{live * 1e3 / ms:.0f} tokens/s"
            return f"{words}, sum {int(step.tokens.sum())}" if live == streams else words

        graph.replay()
        rows.row(name, graph.replay, repeat=REPLAYS, bytes=size if live == streams else None, note=note)


def against_full(rows: Rows, steps: BatchSteps, streams: int) -> dict[str, float]:
    """Time the step and one of full attention; return how many times the second takes the first's."""
    places = {"spread": 0, "all at the end": steps.tokens}
    times: dict[tuple[str, bool], float] = {}
    for full in (False, True):
        rows.table("full attention, layers sharing caches" if full else f"a window of {steps.config.window}")
        step = steps.full_step(streams) if full else steps.step(streams)
        graph = record(step.run, steps.device)
        for name, least in places.items():
            steps.spread(step, least)
            graph.replay()
            size = steps.weights.bytes_a_step() + steps.cache_bytes(streams, least, full)
            times[name, full] = rows.row(name, graph.replay, repeat=REPLAYS, bytes=size).ms
        del step, graph
        torch.cuda.empty_cache()
    ratios = {name: times[name, True] / times[name, False] for name in places}
    rows.say("full over window: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return ratios


def by_part(rows: Rows, steps: BatchSteps, streams: int) -> None:
    """Time each part by itself, beside what its bytes take at measured copy bandwidth."""
    step, sizes = steps.step(streams), steps.part_bytes(streams)
    step.run()  # so that every buffer holds what a step leaves there
    rows.table("parts")
    for name in _parts(step):
        with rows.attempt(name):
            _part(rows, name, steps, step, sizes, name)


def variants(rows: Rows, steps: BatchSteps, streams: int) -> None:
    """Time attention and the experts' products in other blocks, the rest as it is."""
    step, sizes = steps.step(streams), steps.part_bytes(streams)
    step.run()
    rows.table(
        "positions x warps, stages of attention; splits; rows x columns x depth, warps, stages of experts"
    )

    def timed(label: str, *parts: str) -> None:
        with rows.attempt(label):
            for name in parts:
                _part(rows, f"{name} {label}", steps, step, sizes, name)

    now = step.launches
    for block, warps, stages in ATTENTION:
        step.launches = replace(now, attention=Launch(block, warps), stages=stages)
        timed(f"{block:4} x {warps}, {stages}", "attention")
    step.launches = now
    for splits in SPLITS:
        with rows.attempt(f"{splits} splits"):
            _resplit(step, splits)
            timed(f"{splits} splits", "attention", "join")
    held = step._gate_up_launch, step._down_launch
    for launch in GATE_UP:
        step._gate_up_launch = launch
        timed(_words(launch), "experts gate/up, shared down")
    step._gate_up_launch = held[0]
    for launch in DOWN:
        step._down_launch = launch
        timed(_words(launch), "experts down")
    step._down_launch = held[1]


def _part(
    rows: Rows, label: str, steps: BatchSteps, step: BatchStep, sizes: Mapping[str, int], name: str
) -> None:
    """Time the launches of a part: all of a step in one graph, and single ones several times over."""
    runs = _parts(step)[name]
    steps.spread(step)
    several = runs * -(-12 // len(runs))
    graph = record(partial(each, several), steps.device)
    graph.replay()
    size = sizes.get(name, 0) // len(runs)
    rows.row(label, graph.replay, repeat=7, per=len(several), count=len(runs), bytes=size or None)


def _words(launch: GroupedLaunch) -> str:
    return f"{launch.rows:3} x {launch.columns:3} x {launch.depth:3}, {launch.warps}, {launch.stages}"


def _resplit(step: BatchStep, splits: int) -> None:
    """Other partial results; the cache stays."""
    slots, _, heads, head_dim = step.rows[1].partial.shape
    partial = torch.zeros(slots, splits, heads, head_dim, device=step.device)
    log_sums = torch.zeros(slots, splits, heads, device=step.device)
    step.rows[1] = replace(step.rows[1], partial=partial, log_sums=log_sums)


def _parts(step: BatchStep) -> dict[str, list[Callable[[], None]]]:
    """The launches of each part in order."""
    found: dict[str, list[Callable[[], None]]] = {}
    for name, launch in step.parts():
        found.setdefault(name, []).append(launch)
    return found
