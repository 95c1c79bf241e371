"""Moves of logits by rounding, and what it costs to record the two best of every step.

    dsocr measure ties PAGE --device cpu --dtype bfloat16

Fed the eager engine's own tokens, its two orders of attention give logits that differ by rounding alone:
first it prints by how many ULP (`outputs.margins`), which is what `TIE_ULPS` rests on. Then the first page
is decoded with and without the record, in turns: on a CPU by the processor's time, which other work does not
touch, on a GPU by the device's. The record's copy to the host is in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.device import resolve_device
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.measure.device import milliseconds
from dsocr_core.measure.teacher_forcing import teacher_forced_eager
from dsocr_core.reading.margins import ulp
from dsocr_core.reading.records import OcrRequest


@dataclass(frozen=True)
class Moves:
    """In ULP of the type, one a step: T steps."""

    logits: Tensor
    """Moves of each of the two best, (2 T,)."""
    margins: Tensor
    """Moves of the difference of the two, (T,)."""
    flips: int
    """Steps in which another token is best."""


def moves(one: Tensor, other: Tensor, dtype: str) -> Moves:
    """Measure how far the logits (T, V) of two ways lie apart, at the first way's two best."""
    best = one.topk(2, dim=1)
    there = other.gather(1, best.indices)  # (T, 2)
    sizes = torch.tensor([ulp(float(size), dtype) for size in best.values.abs().amax(1)])  # (T,)
    apart = best.values - there
    return Moves(
        (apart.abs() / sizes[:, None]).flatten(),
        (apart[:, 0] - apart[:, 1]).abs() / sizes,
        int((one.argmax(1) != other.argmax(1)).sum()),
    )


def rounding(checkpoint: Checkpoint, requests: Sequence[OcrRequest]) -> Moves:
    """Between eager attention and SDPA, fed the tokens that the first chose."""
    eager, sdpa = (EagerEngine(checkpoint, EngineOptions(attention)) for attention in ("eager", "sdpa"))
    device, dtype = checkpoint.model.device, str(checkpoint.model.dtype).removeprefix("torch.")
    found = []
    for request in requests:
        tokens = eager.recognize(request).required_tokens
        with eager.modes():
            page, pixels = eager.take_in(request, None, StageTimer(device, marks=Marks.NONE))
        ways = [teacher_forced_eager(engine, page, pixels, tokens).logits.cpu() for engine in (eager, sdpa)]
        found.append(moves(ways[0], ways[1], dtype))
    logits, margins = torch.cat([one.logits for one in found]), torch.cat([one.margins for one in found])
    return Moves(logits, margins, sum(one.flips for one in found))


def cost(checkpoint: Checkpoint, request: OcrRequest, repeat: int) -> tuple[float, float]:
    """Median milliseconds of a decoded token without and with the record, read in turns."""
    engines = [EagerEngine(checkpoint, EngineOptions(ignore_eos=True, top_two=on)) for on in (False, True)]
    times: list[list[float]] = [[], []]
    for turn in range(repeat + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            spent = _decode_ms(engines[which], request)
            if turn:  # the first warms up
                times[which].append(spent)
    without, with_it = map(statistics.median, times)
    return without, with_it


def _decode_ms(engine: EagerEngine, request: OcrRequest) -> float:
    device = engine.checkpoint.model.device
    timer, decoder, calls = StageTimer(device, marks=Marks.NONE), engine._decoder, 0
    with engine.modes():
        page, pixels = engine.take_in(request, None, timer)
        sequence = decoder.start(page.prompt.ids, page.limit, engine.ngram_policy(request), engine.core)
        logits = engine.prefill(page.prompt, pixels, sequence, timer, None)

        def run() -> None:
            nonlocal calls
            calls = len(
                decoder.decode(sequence, page.prompt.ids, logits, page.limit, lambda _: None, None)[0]
            )
            if sequence.best is not None:
                sequence.best.steps()

        if device.type == "cuda":
            spent = milliseconds(run, device)
        else:
            began = time.process_time()
            run()
            spent = (time.process_time() - began) * 1e3
    return spent / calls


def run(
    pages: tuple[str, ...],
    *,
    checkpoint: str | None = None,
    device: str = "auto",
    dtype: tuple[Literal["bfloat16", "float32"], ...] = ("bfloat16", "float32"),
    preset: str = "tiny",
    tokens: int = 80,
    repeat: int = 20,
) -> None:
    """Measure how far rounding moves logits, and what recording them costs.

    Args:
        pages: image files
        checkpoint: checkpoint directory (default: the embedded one)
        device: auto, cpu, cuda or cuda:N
        dtype: number types of the weights
        preset: tiny, small, base, large or gundam
        tokens: new tokens of a page at most
        repeat: measured passes of each way
    """
    requests = [OcrRequest(Path(page), preset, max_new_tokens=tokens) for page in pages]
    for each in dtype:
        loaded = load_checkpoint(
            checkpoint or str(EMBEDDED_CHECKPOINT), resolve_device(device), getattr(torch, each)
        )
        found = rounding(loaded, requests)
        print(f"{each}, {len(found.margins)} steps, {found.flips} of them choose another token")
        for name, values in (("one logit", found.logits), ("their difference", found.margins)):
            print(
                f"  {name:<17} moves by {values.median():.3g} ULP (median), "
                f"{values.quantile(0.99):.3g} (99 of 100), {values.max():.3g} (most)"
            )
        without, with_it = cost(loaded, requests[0], repeat)
        print(
            f"  a token takes {without:.3f} ms without the record, {with_it:.3f} ms with it: "
            f"ratio {with_it / without:.3f}"
        )
