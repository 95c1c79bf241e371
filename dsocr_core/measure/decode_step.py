"""Times the bare decode step on a GPU, for tuning: no page, no prefill, random weights and cache.

    dsocr measure decode-step --config PATH --tokens 1000 --context 741 --sweep
    dsocr measure decode-step --config PATH --at 500 6000

Prints the step by plain launches and as a graph, with and without dependent launch; then each kernel by
itself, all its launches of a step in a row, so that one layer's weights push out another's; with
`--sweep` searches the step's launches, each change timed inside the whole token, for `--sweep-seconds`. With
`--at` only tokens from these steps on are timed: where a step grows with what was written, and where not.
The output product of attention is small enough to stay in the L2 cache when it runs by itself: its row
is too good.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsocr_core.base.console import print_json
from dsocr_core.engine.fast.cuda_graph import StepGraph, record, repeated
from dsocr_core.engine.fast.decode import STEPS_A_GRAPH
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.step_launches import StepLaunches, launches_for
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.state import POSITION
from dsocr_core.measure.device import milliseconds, require_fast_engine_for
from dsocr_core.measure.rows import Rows, each
from dsocr_core.measure.sweep_decode import FIELDS
from dsocr_core.measure.sweep_decode import sweep as search_launches
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import load_config
from dsocr_core.models.weights import random_model
from dsocr_core.settings import SettingsError

NGRAM_SIZE = 20
TIMED = 256
"""Tokens that are timed from a step on."""
LAUNCHES_A_GRAPH = 24
"""At least, of a kernel timed by itself: a graph's own start is several microseconds."""


class Steps:
    """A model of random weights and the steps over them."""

    def __init__(self, config: DecoderConfig, weights: PackedDecoder, context: int, tokens: int) -> None:
        self.config, self.weights, self.context, self.tokens = config, weights, context, tokens
        self.device = weights.embedding.device

    def step(self, launches: StepLaunches) -> DecodeStep:
        """A step in the middle of nowhere: random prompt, random cache, all tokens still to come."""
        held = KvCache.positions(self.config, self.context, self.tokens + 1)
        positions = self.context + self.tokens + 1
        step = DecodeStep(self.weights, self.config, positions, torch.bfloat16, NO_TOKEN, launches, held=held)
        generator = torch.Generator(self.device).manual_seed(0)
        step.cache.keys.normal_(generator=generator)
        step.cache.values.normal_(generator=generator)
        return step

    def begin(self, step: DecodeStep) -> None:
        """At the first token."""
        ids = torch.randint(0, self.config.vocab_size, (self.context + 1,), generator=_seeded())
        step.begin(tuple(ids.tolist()), self.tokens, NGRAM_SIZE)

    def time_launches(self, launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        """Microseconds a token in so many runs of all tokens, and the tokens of the last.

        All of them, as attention takes steps: launches that are best at one length of the cache lose at
        another. Without runs the step is launched once, which compiles it. May run in any thread.
        """
        with torch.inference_mode():
            step = self.step(launches)
            count = self.tokens - 1
            self.begin(step)
            if not runs:
                step.run()
                return [], []
            graph = StepGraph(step, STEPS_A_GRAPH)
            times = []
            for _ in range(runs + 1):
                self.begin(step)
                times.append(milliseconds(partial(graph.replay, count), self.device) * 1e3 / count)
            first = self.context + 1
            return times[1:], step.tokens[first : first + count].tolist()

    def kernel_bytes(self) -> dict[str, int]:
        """Count the bytes that one launch of each kernel must read; the cache as at the start."""
        c, size = self.config, self.weights.embedding.element_size()
        width, routed = c.hidden_size, c.experts_per_token * c.moe_intermediate_size
        rows = {
            "embed_token": 1,
            "qkv_rotary": 3 * width,
            "split_attention": 2 * self.context,
            "attention_output": width,
            "dense_gate_up": 2 * c.intermediate_size,
            "dense_down": c.intermediate_size,
            "gate_up": 2 * c.shared_width + 2 * routed,
            "mixture_down": routed + c.shared_width,
            "split_vector": 1,
            "bound_rows": c.vocab_size // 2,  # in 8 bits
            "best_of_bounded": 0,
            "take_best": 0,
            "route": c.routed_experts,
        }
        return {name: count * width * size for name, count in rows.items()}

    def bytes_a_token(self) -> int:
        """Weights, and the cache in the middle of the run."""
        position = 2 * self.config.heads * self.config.head_dim * self.config.layers * 2
        weights = self.weights.bytes_a_token(self.config.experts_per_token)
        return weights + position * KvCache.positions(self.config, self.context, self.tokens // 2)


def run(
    *,
    config: Path,
    tokens: int = 1000,
    context: int = 741,
    repeat: int = 3,
    sweep: tuple[str, ...] | None = None,
    sweep_seconds: float = 400.0,
    no_dependent: bool = False,
    at: tuple[int, ...] | None = None,
) -> None:
    """Time the fast engine's decode step on random weights, on a GPU.

    Args:
        config: config.json of the sizes to run
        tokens: steps of one pass
        context: prompt tokens before the first step
        repeat: measured passes
        sweep: also search better launches: in every field of StepLaunches, or in those named
        sweep_seconds: bound of that search
        no_dependent: without programmatic dependent launch
        at: time tokens from these steps on, and nothing else
    """
    require_fast_engine_for("measure decode-step")
    if unknown := sorted(set(sweep or ()) - set(FIELDS)):
        raise SettingsError(f"sweep: no field '{unknown[0]}'; give some of {', '.join(sorted(FIELDS))}")
    device = torch.device("cuda")
    sizes = load_config(config)
    model = random_model(sizes, device, torch.bfloat16)
    most = max(tokens, *(step + TIMED for step in at or ()))
    steps = Steps(sizes.decoder, PackedDecoder.of(model.decoder), context, most)
    rows = Rows(device)
    defaults = launches_for(device)
    if no_dependent:
        defaults = defaults.with_dependent(False)
    found: dict[str, Any] = {}
    if at:
        with torch.inference_mode():
            at_steps(rows, steps, defaults, at, repeat)
        print_json(rows.document())
        return
    with torch.inference_mode():
        whole_step(rows, steps, defaults, repeat)
        by_kernel(rows, steps, defaults)
        if sweep is not None:
            found["sweep"] = search_launches(defaults, steps.time_launches, sweep_seconds, sweep)
    print_json(rows.document(**found))


def whole_step(rows: Rows, steps: Steps, defaults: StepLaunches, repeat: int) -> None:
    """Time a token at all its tokens: launched, recorded, recorded several to a graph."""
    size = steps.bytes_a_token()
    floor = size / rows.copy_bytes_per_s * 1e3
    rows.table(f"a token: {size / 1e9:.3f} GB, {floor:.3f} ms at measured copy")
    compared = (steps.tokens - 1) // STEPS_A_GRAPH * STEPS_A_GRAPH  # what every way decodes
    for dependent in (False, True) if defaults.qkv_rotary.dependent else (False,):
        step = steps.step(defaults.with_dependent(dependent))
        launches = sum(1 for _ in step.kernels())
        mode = f"{launches} launches, {'dependent' if dependent else 'plain'}"
        ways: list[tuple[str, int, Callable[[], None]]] = [(f"{mode}, no graph", 1, step.run)]
        for many in (1, STEPS_A_GRAPH):
            graph = record(partial(repeated, many, step.run), steps.device)
            ways.append((f"{mode}, {many} a graph", many, graph.replay))
        for name, many, run in ways:
            count = (steps.tokens - 1) // many
            written = step.tokens[steps.context + 1 :][:compared]
            rows.row(
                name, partial(repeated, count, run), before=partial(steps.begin, step), per=count * many,
                repeat=repeat, bytes=size, note=partial(_tokens, written),
            )  # fmt: skip


def at_steps(rows: Rows, steps: Steps, launches: StepLaunches, at: tuple[int, ...], repeat: int) -> None:
    """Time tokens from each of these steps on, in turn: a clock that falls is no step's."""
    step = steps.step(launches)
    steps.begin(step)
    graph = StepGraph(step, STEPS_A_GRAPH)

    def begin(number: int) -> None:
        steps.begin(step)
        step.state[POSITION] += number

    rows.table("a token")
    for _ in range(2):
        for number in at:
            rows.row(
                f"from step {number} on", partial(graph.replay, TIMED), before=partial(begin, number),
                per=TIMED, repeat=repeat, note=lambda ms: f"{1e3 / ms:.0f} tokens/s",
            )  # fmt: skip


def _tokens(written: Tensor, ms: float) -> str:
    return f"{1e3 / ms:.0f} tokens/s, sum {int(written.sum())}"


def by_kernel(rows: Rows, steps: Steps, launches: StepLaunches) -> None:
    """Time each kernel by itself, without and with dependent launch."""
    sizes = steps.kernel_bytes()
    for dependent in dict.fromkeys((False, launches.qkv_rotary.dependent)):
        step = steps.step(launches.with_dependent(dependent))
        steps.begin(step)
        step.run()
        rows.table(f"kernels, {'dependent' if dependent else 'plain'}")
        kernels: dict[str, list[Callable[[], None]]] = {}
        for name, launch in step.kernels():
            kernels.setdefault(name, []).append(launch)
        for name, runs in kernels.items():
            several = runs * -(-LAUNCHES_A_GRAPH // len(runs))
            graph = record(partial(each, several), steps.device)
            graph.replay()
            rows.row(
                name, graph.replay, repeat=30, per=len(several), count=len(runs), bytes=sizes[name] or None
            )


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
