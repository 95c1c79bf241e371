"""Times the fast engine's decode steps on a GPU: no page, no prefill, random weights and caches.

    python -m tests.perf.steps one --config CONFIG --tokens 1000 --context 741
    python -m tests.perf.steps one --config CONFIG --at 500 6000
    python -m tests.perf.steps batch --config CONFIG --streams 256 --context 900 --tokens 1000

`one` is the step of a single page: launched and as a graph, with and without dependent launch; then each
kernel by itself, all its launches of a step in a row, so that one layer's weights push out another's. With
`--at` only tokens from these steps on are timed.
`batch` is the step of many: the streams stand where a batch with continuous refill has them, their contexts
spread evenly from `--context` to `--context` + `--tokens`. Prints the step as a graph, with half and with all
slots finished.
The sums of the tokens say whether two commits compute the same bits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from dsocr_core.engine.fast.batch_step import BatchStep, position_bytes
from dsocr_core.engine.fast.decode import STEPS_A_GRAPH, StepGraph, repeated
from dsocr_core.engine.fast.graphs import record
from dsocr_core.engine.fast.step import DecodeStep, StepLaunches, launches_for
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.state import DONE, POSITION, state_row
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import load_config
from dsocr_core.reading.records import NgramPolicy
from tests.engine.decoders import random_decoder
from tests.perf.rows import Rows, each

NGRAM_SIZE = 20
REPLAYS = 10
TIMED = 256
"""Tokens that are timed from a step on."""
LAUNCHES_A_GRAPH = 24
"""At least, of a kernel timed by itself: a graph's own start is several microseconds."""
SPARE = 256
"""Positions behind the longest stream: more steps than are run here."""
LIVE = {"all live": slice(0), "every second live": slice(0, None, 2), "none live": slice(None)}
"""By name the slots that are finished."""


# --- one page ---------------------------------------------------------------------------------------


class OneStep:
    """The step of a single page over random weights."""

    def __init__(self, config: DecoderConfig, context: int, tokens: int, device: torch.device) -> None:
        self.config, self.context, self.tokens, self.device = config, context, tokens, device
        self.weights = pack(random_decoder(config, self.device))

    def step(self, launches: StepLaunches) -> DecodeStep:
        """Make a step with a random cache, all tokens still to come."""
        cached = KvCache.positions(self.config, self.context, self.tokens + 1)
        positions = self.context + self.tokens + 1
        step = DecodeStep(
            self.weights, self.config, positions, torch.bfloat16, NO_TOKEN, launches, cached=cached
        )
        generator = torch.Generator(self.device).manual_seed(0)
        step.cache.keys.normal_(generator=generator)
        step.cache.values.normal_(generator=generator)
        return step

    def begin(self, step: DecodeStep) -> None:
        """Put the step at its first token."""
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, self.config.vocab_size, (self.context + 1,), generator=generator)
        step.begin(tuple(ids.tolist()), self.tokens, NGRAM_SIZE)

    def bytes_a_token(self) -> int:
        """Count weights, and the cache in the middle of the run."""
        position = 2 * self.config.heads * self.config.head_dim * self.config.layers * 2
        head, chosen = self.weights.rounded_head, self.config.experts_per_token
        weights = self.weights.norm.nbytes + self.weights.embedding[0].nbytes
        weights += head.rows.nbytes + head.scale.nbytes + head.reach.nbytes
        for layer in self.weights.layers:
            weights += layer.shared_bytes
            if layer.experts is not None:
                weights += layer.routed_bytes // len(layer.router) * chosen
        return weights + position * KvCache.positions(self.config, self.context, self.tokens // 2)


def whole_token(rows: Rows, one: OneStep, launches: StepLaunches) -> None:
    """Time a token at all its tokens: launched, recorded, recorded several to a graph."""
    size = one.bytes_a_token()
    rows.table(f"a token: {size / 1e9:.3f} GB, {size / rows.copy_bytes_per_s * 1e3:.3f} ms at measured copy")
    compared = (one.tokens - 1) // STEPS_A_GRAPH * STEPS_A_GRAPH  # what every way decodes
    for dependent in (False, True) if launches.qkv_rotary.dependent else (False,):
        step = one.step(launches.with_dependent(dependent))
        number = sum(1 for _ in step.kernels())
        mode = f"{number} launches, {'dependent' if dependent else 'plain'}"
        ways: list[tuple[str, int, Callable[[], None]]] = [(f"{mode}, no graph", 1, step.run)]
        for many in (1, STEPS_A_GRAPH):
            graph = record(partial(repeated, many, step.run), one.device)
            ways.append((f"{mode}, {many} a graph", many, graph.replay))
        for name, many, run in ways:
            count = (one.tokens - 1) // many
            written = step.tokens[one.context + 1 :][:compared]
            rows.row(
                name, partial(repeated, count, run), before=partial(one.begin, step), per=count * many,
                repeat=3, bytes=size, note=partial(_tokens, written),
            )  # fmt: skip


def _tokens(written: Tensor, ms: float) -> str:
    return f"{1e3 / ms:.0f} tokens/s, sum {int(written.sum())}"


def tokens_at(rows: Rows, one: OneStep, launches: StepLaunches, at: list[int]) -> None:
    """Time tokens from each of these steps on, in turns, so that a falling clock hits all of them."""
    step = one.step(launches)
    one.begin(step)
    graph = StepGraph(step, STEPS_A_GRAPH)

    def begin(number: int) -> None:
        one.begin(step)
        step.state[POSITION] += number

    rows.table("a token")
    for _ in range(2):
        for number in at:
            rows.row(
                f"from step {number} on", partial(graph.replay, TIMED), before=partial(begin, number),
                per=TIMED, repeat=3, note=lambda ms: f"{1e3 / ms:.0f} tokens/s",
            )  # fmt: skip


def by_kernel(rows: Rows, one: OneStep, launches: StepLaunches) -> None:
    """Time each kernel by itself, without and with dependent launch."""
    for dependent in dict.fromkeys((False, launches.qkv_rotary.dependent)):
        step = one.step(launches.with_dependent(dependent))
        one.begin(step)
        step.run()
        rows.table(f"kernels, {'dependent' if dependent else 'plain'}")
        by_name: dict[str, list[Callable[[], None]]] = {}
        for name, launch in step.kernels():
            by_name.setdefault(name, []).append(launch)
        for name, runs in by_name.items():
            several = runs * -(-LAUNCHES_A_GRAPH // len(runs))
            graph = record(partial(each, several), one.device)
            graph.replay()
            rows.row(name, graph.replay, repeat=30, per=len(several), count=len(runs))


# --- a batch ----------------------------------------------------------------------------------------


class BatchSteps:
    """Steps in the middle of a long batch over random weights."""

    def __init__(
        self, config: DecoderConfig, context: int, tokens: int, cache: str, device: torch.device
    ) -> None:
        self.config, self.context, self.tokens, self.cache = config, context, tokens, cache
        self.device = device
        self.weights = pack(random_decoder(config, self.device))

    def step(self, streams: int) -> BatchStep:
        """Make a step of that many streams, all of them live."""
        new = self.tokens + SPARE
        step = BatchStep(
            self.weights, self.config, streams, self.context + new, torch.bfloat16, NO_TOKEN,
            cached=KvCache.positions(self.config, self.context, new), precision=self.cache,
        )  # fmt: skip
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

    def spread(self, step: BatchStep) -> None:
        """Put every stream at its own context, evenly spaced."""
        last, policy = step.positions - 1, NgramPolicy(NGRAM_SIZE)
        contexts = (self.context + torch.linspace(0, self.tokens, step.slots).int()).tolist()
        rows = [state_row(context, last, 0, policy, first_new=self.context) for context in contexts]
        step.states.copy_(torch.tensor(rows, dtype=torch.int32))

    def cache_bytes(self, streams: int) -> int:
        """Count keys and values that a step reads."""
        position = position_bytes(self.config, torch.bfloat16, self.cache)
        return position * streams * KvCache.positions(self.config, self.context, self.tokens // 2)


def whole_step(rows: Rows, steps: BatchSteps, streams: int) -> None:
    """Time the step as a graph; then with every second slot finished, then with all."""
    step = steps.step(streams)
    graph = record(step.run, steps.device)
    cache = steps.cache_bytes(streams)
    size = steps.weights.bytes_a_step() + cache
    rows.table(
        f"{streams} streams from {steps.context} to {steps.context + steps.tokens}: {size / 1e9:.2f} GB, "
        f"{cache / 1e9:.2f} of them caches; {sum(1 for _ in step.parts())} launches, "
        f"{torch.cuda.memory_allocated() / 1e9:.1f} GB allocated"
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


# --- the command ------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """The parser of both commands."""
    parser = argparse.ArgumentParser(description="Time the decode steps of the fast engine, on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    one, batch = commands.add_parser("one"), commands.add_parser("batch")
    for each_parser in (one, batch):
        each_parser.add_argument("--config", type=Path, required=True, help="config.json of the sizes to run")
        each_parser.add_argument("--tokens", type=int, default=1000, help="steps, or spread of the contexts")
    one.add_argument("--context", type=int, default=741, help="prompt tokens before the first step")
    one.add_argument("--at", type=int, nargs="*", help="time tokens from these steps on, and nothing else")
    batch.add_argument("--context", type=int, default=900, help="the shortest context")
    batch.add_argument("--streams", type=int, default=256, help="pages decoded together")
    batch.add_argument("--cache", choices=("off", "fp8-kv"), default="off", help="number type of the caches")
    return parser


@torch.inference_mode()
def main() -> None:
    """Time what is asked for."""
    chosen = build_parser().parse_args()
    config, rows = load_config(chosen.config).decoder, Rows()
    if chosen.command == "one":
        most = max(chosen.tokens, *(step + TIMED for step in chosen.at or ()), 0)
        one, launches = OneStep(config, chosen.context, most, rows.device), launches_for(rows.device)
        if chosen.at:
            tokens_at(rows, one, launches, chosen.at)
        else:
            whole_token(rows, one, launches)
            by_kernel(rows, one, launches)
    else:
        steps = BatchSteps(config, chosen.context, chosen.tokens, chosen.cache, rows.device)
        whole_step(rows, steps, chosen.streams)


if __name__ == "__main__":
    main()
