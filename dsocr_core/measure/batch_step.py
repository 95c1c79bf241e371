"""Times the batch's decode step on a GPU, for tuning: no page, no prefill, random weights and caches.

    dsocr measure batch-step --config PATH --streams 256 --context 900 --tokens 1000 --sweep

Streams stand where a batch with continuous refill has them: their contexts spread evenly from `--context` to
`--context` + `--tokens`, the end token ignored. Prints the step recorded as a graph, with half and with all
slots finished; then each part by itself, all its launches of a step in a row, beside what it must read; with
`--sweep` other blocks, stages and splits of attention, other tiles of the experts and other numbers of
streams. What fails prints one line and the rest goes on.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from dsocr_core.config import DecoderConfig, load_config
from dsocr_core.engine.fast.batch_step import BatchLaunches, BatchStep
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.cuda_graph import record
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.prefill.grouped_experts import GroupedLaunch
from dsocr_core.kernels.state import DONE, state_row
from dsocr_core.measure.device import copy_bandwidth, milliseconds, require_fast_engine_for
from dsocr_core.model.decoder import Decoder
from dsocr_core.records import NgramPolicy

NGRAM_SIZE = 20
REPLAYS = 10
SPARE = 256
"""Positions behind the longest stream: more steps than are run here."""

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


class BatchBench:
    """Random weights, and steps in the middle of a long batch over them."""

    def __init__(self, config: DecoderConfig, weights: BatchWeights, context: int, tokens: int) -> None:
        self.config, self.weights, self.context, self.tokens = config, weights, context, tokens
        self.device = weights.embedding.device

    def step(self, streams: int, launches: BatchLaunches | None = None) -> BatchStep:
        """A step of that many streams, all of them live."""
        positions = self.context + self.tokens + SPARE
        step = BatchStep(self.weights, self.config, streams, positions, torch.bfloat16, NO_TOKEN, launches)
        generator = torch.Generator(self.device).manual_seed(0)
        for half in (step.keys, step.values):
            for layer in half:  # a layer at a time: less at once than the whole
                layer.normal_(generator=generator)
        ids = torch.randint(
            0, self.config.vocab_size, step.tokens.shape, generator=torch.Generator().manual_seed(0)
        )
        step.tokens.copy_(ids)
        self.spread(step)
        return step

    def spread(self, step: BatchStep) -> None:
        """Every stream at its own context, evenly apart, far from its last token."""
        last, policy = step.positions - 1, NgramPolicy(NGRAM_SIZE)
        contexts = (self.context + torch.linspace(0, self.tokens, step.slots).int()).tolist()
        rows = [state_row(context, last, 0, policy, first_new=self.context) for context in contexts]
        states = torch.tensor(rows, dtype=torch.int32)
        step.states.copy_(states)

    def cache_bytes(self, streams: int) -> int:
        """Keys and values that a step reads, the streams at their contexts."""
        position = 2 * self.config.heads * self.config.head_dim * self.config.layers * 2
        return position * streams * (self.context + self.tokens // 2)

    def part_bytes(self, streams: int) -> dict[str, int]:
        """What all launches of a part must move in a step."""
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
            "shared down": mixtures * c.shared_width * width,
            "experts gate/up": 2 * routed,
            "experts down": routed,
            "head": c.vocab_size * (width + streams),
            "best": c.vocab_size * streams,
        }
        return {name: count * size for name, count in rows.items()} | {"attention": self.cache_bytes(streams)}


def run(
    *, config: Path, streams: int = 256, context: int = 900, tokens: int = 1000, sweep: bool = False
) -> None:
    """Time the decode step of a batch on random weights, on a GPU.

    Args:
        config: config.json of the sizes to run
        streams: pages decoded together
        context: the shortest context
        tokens: how much longer the longest context is
        sweep: also try other blocks, tiles and streams
    """
    require_fast_engine_for("measure batch-step")
    started = time.perf_counter()
    device = torch.device("cuda")
    with torch.inference_mode():
        decoder = load_config(config).decoder
        weights = BatchWeights.of(PackedDecoder.of(random_decoder(decoder, device)))
        bandwidth = copy_bandwidth(device)
        torch.cuda.empty_cache()
        print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, "
              f"copy {bandwidth / 1e12:.2f} TB/s", flush=True)  # fmt: skip
        bench = BatchBench(decoder, weights, context, tokens)
        with saying("whole step"):
            whole_step(bench, streams, bandwidth)
        with saying("parts"):
            by_part(bench, streams, bandwidth)
        if sweep:
            with saying("sweep"):
                variants(bench, streams, bandwidth)
            for fewer in STREAMS:
                with saying(f"{fewer} streams"):
                    whole_step(bench, fewer, bandwidth)
    print(f"\n{time.perf_counter() - started:.0f} s in all", flush=True)


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


@contextmanager
def saying(what: str) -> Iterator[None]:
    """One line for what fails, memory given back, and on."""
    try:
        yield
    # A kernel that does not compile, needs more than there is, or faults: each is an answer.
    except Exception as error:  # noqa: BLE001
        print(f"{what} failed: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def whole_step(bench: BatchBench, streams: int, bandwidth: float) -> None:
    """The step as a graph; then with every second slot finished, then with all."""
    step = bench.step(streams)
    graph = record(step.run, bench.device)
    bench.spread(step)
    size = bench.weights.bytes_a_step() + bench.cache_bytes(streams)
    cache = bench.cache_bytes(streams)
    print(
        f"\n{streams} streams, contexts {bench.context} to {bench.context + bench.tokens}: "
        f"{size / 1e9:.2f} GB a step, {cache / 1e9:.2f} of them caches; "
        f"floor {size / bandwidth * 1e3:.2f} ms; {sum(1 for _ in step.parts())} launches; "
        f"{torch.cuda.memory_allocated() / 1e9:.1f} GB held",
        flush=True,
    )
    print(f"{'step':22} {'ms':>8} {'min':>8} {'tokens/s':>9} {'GB/s':>7} {'of copy':>8}  tokens' sum")
    for name, live in (("all live", 1), ("every second live", 2), ("none live", 0)):
        bench.spread(step)
        if live == 2:
            step.states[::2, DONE] = 1
        elif live == 0:
            step.states[:, DONE] = 1
        graph.replay()
        times = [milliseconds(graph.replay, bench.device) for _ in range(REPLAYS)]
        ms, count = statistics.median(times), 0 if live == 0 else -(-streams // live)
        figures = f"{size / ms / 1e6:7.0f} {size / ms * 1e3 / bandwidth:8.1%}" if live == 1 else " " * 16
        print(
            f"{name:22} {ms:8.3f} {min(times):8.3f} {count * 1e3 / ms:9.0f} {figures}  "
            f"{int(step.tokens.sum()) if live == 1 else ''}",
            flush=True,
        )


def by_part(bench: BatchBench, streams: int, bandwidth: float) -> None:
    """Microseconds of each part by itself, beside what its bytes take at measured copy bandwidth."""
    step, sizes = bench.step(streams), bench.part_bytes(streams)
    step.run()  # so that every buffer holds what a step leaves there
    print(f"\n{'part':24} {'launches':>8} {'us each':>8} {'us a step':>10} {'floor':>8} {'of copy':>8}")
    total = floors = 0.0
    for name, runs in _parts(step).items():
        with saying(name):
            bench.spread(step)
            us = _us_each(runs, bench.device)
            floor = sizes.get(name, 0) / bandwidth * 1e6
            total, floors = total + us * len(runs), floors + floor
            share = f"{floor / us / len(runs):8.1%}" if floor else ""
            print(
                f"{name:24} {len(runs):8} {us:8.2f} {us * len(runs):10.1f} {floor:8.1f} {share}", flush=True
            )
    print(f"{'all':24} {'':8} {'':8} {total:10.1f} {floors:8.1f}", flush=True)


def variants(bench: BatchBench, streams: int, bandwidth: float) -> None:
    """Attention and the experts' products in other blocks, the rest as it is."""
    step, sizes = bench.step(streams), bench.part_bytes(streams)
    step.run()

    def report(label: str, parts: tuple[str, ...]) -> None:
        with saying(label):
            bench.spread(step)
            words = []
            for name in parts:
                runs = _parts(step)[name]
                us = _us_each(runs, bench.device, repeat=3)
                share = sizes.get(name, 0) / len(runs) / us * 1e6 / bandwidth
                words.append(f"{name} {us:8.2f} us each, {share:6.1%} of copy")
            print(f"  {label:24}", *words, flush=True)

    now = step.launches
    print(f"\nattention: positions x warps, stages (now {now.attention}, {now.stages})")
    for rows, warps, stages in ATTENTION:
        step.launches = replace(now, attention=Launch(rows, warps), stages=stages)
        report(f"{rows:4} x {warps}, {stages}", ("attention",))
    step.launches = now
    for splits in SPLITS:
        with saying(f"{splits} splits"):
            _resplit(step, splits)
            report(f"{splits} splits", ("attention", "join"))
    print("experts: rows x columns x depth, warps, stages")
    held = step._gate_up_launch, step._down_launch
    for launch in GATE_UP:
        step._gate_up_launch = launch
        report(f"{_words(launch)}", ("experts gate/up",))
    step._gate_up_launch = held[0]
    for launch in DOWN:
        step._down_launch = launch
        report(f"{_words(launch)}", ("experts down",))
    step._down_launch = held[1]


def _words(launch: GroupedLaunch) -> str:
    return f"{launch.rows:3} x {launch.columns:3} x {launch.depth:3}, {launch.warps}, {launch.stages}"


def _resplit(step: BatchStep, splits: int) -> None:
    """Other partial results; the cache stays."""
    slots, _, heads, head_dim = step._partial.shape
    step._partial = torch.zeros(slots, splits, heads, head_dim, device=step.device)
    step._log_sums = torch.zeros(slots, splits, heads, device=step.device)


def _parts(step: BatchStep) -> dict[str, list[Callable[[], None]]]:
    """The launches of each part in order."""
    found: dict[str, list[Callable[[], None]]] = {}
    for name, launch in step.parts():
        found.setdefault(name, []).append(launch)
    return found


def _us_each(runs: list[Callable[[], None]], device: torch.device, repeat: int = 7) -> float:
    """Microseconds a launch: all of a step in one graph, and single ones several times over."""
    row = runs * -(-12 // len(runs))
    graph = record(partial(_each, row), device)
    graph.replay()
    return statistics.median(milliseconds(graph.replay, device) for _ in range(repeat)) * 1e3 / len(row)


def _each(runs: list[Callable[[], None]]) -> None:
    for run in runs:
        run()
