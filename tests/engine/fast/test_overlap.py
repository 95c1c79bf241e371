"""What a kernel reads before its wait is complete: every launch of two steps traced, load by load.

The rule is counted from the trace's addresses here, and from names in `launch.unready`: both must find the
same for every kernel, and every two and three, that let the next one start early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from dsocr_core.engine.fast.step import DecodeStep, StepLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.launch import Launch, unready
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

BUFFERS = (
    "tokens", "state", "matched", "_banned_at", "_x", "_q", "_partial", "_log_sums", "_expert_ids",
    "_expert_weights", "_routed", "_shared", "_dense", "_normed", "_planes", "_sizes",
    "_lower", "_upper", "_best_logit", "_best_token",
)  # fmt: skip


@dataclass
class Accesses:
    """Addresses of one launch, inside what the step's kernels write."""

    name: str
    read_before: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    written_before: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)


class Trace:
    """Takes the place of the interpreter's loads and stores, and of the wait."""

    def __init__(self, patch: pytest.MonkeyPatch, step: DecodeStep) -> None:
        import triton.language as tl
        import triton.runtime.interpreter as interpreter

        held = [getattr(step, name) for name in BUFFERS] + [step.cache.keys, step.cache.values]
        self.ranges = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in held]
        self.launches: list[Accesses] = []
        self.waited, self.events = False, set[tuple[str, ...]]()
        builder = interpreter.InterpreterBuilder
        load, store, program = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx

        def traced_load(builder: Any, ptrs: Any, mask: Any, other: Any, cache: Any, *rest: Any) -> Any:
            at = self.inside(ptrs, mask)
            self.launches[-1].read |= at
            if not self.waited and at:
                assert "CG" in str(cache), f"{self.launches[-1].name} may read an old line of the L1 cache"
                self.launches[-1].read_before |= at
            return load(builder, ptrs, mask, other, cache, *rest)

        def traced_store(builder: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
            at = self.inside(ptrs, mask)
            self.launches[-1].written |= at
            if not self.waited:
                self.launches[-1].written_before |= at
            return store(builder, ptrs, value, mask, *rest)

        def next_program(builder: Any, *index: int) -> None:
            self.waited = False
            program(builder, *index)

        def wait() -> None:
            self.waited = True

        patch.setattr(builder, "create_masked_load", traced_load)
        patch.setattr(builder, "create_masked_store", traced_store)
        patch.setattr(builder, "set_grid_idx", next_program)
        patch.setattr(tl.extra.cuda, "gdc_wait", wait)
        patch.setattr(tl.extra.cuda, "gdc_launch_dependents", lambda: None)
        options = Launch.options
        patch.setattr(
            Launch, "options", lambda at: {k: v for k, v in options(at).items() if k != "launch_pdl"}
        )

    def inside(self, ptrs: Any, mask: Any) -> set[int]:
        at = np.unique(np.broadcast_to(ptrs.data, mask.data.shape)[mask.data.astype(bool)])
        return {int(a) for a in at if any(low <= a < high for low, high in self.ranges)}


def hazards(launches: list[Accesses], early: set[str]) -> Iterator[str]:
    """Kernels that, before their wait, touch what one still running writes, or write what it reads."""
    complete = -1
    for number, now in enumerate(launches):
        if number == 0:
            continue
        if launches[number - 1].name not in early:
            complete = number - 2
        for other in launches[complete + 1 : number]:
            if other.written & (now.read_before | now.written_before) or other.read & now.written_before:
                yield now.name


DEFAULTS = StepLaunches()
LARGE: dict[str, Any] = {
    name: replace(at, rows=16 if name == "split_attention" else 64, programs=0)
    for name, at in vars(DEFAULTS).items()
    if isinstance(at, Launch)
}
LAUNCHES = StepLaunches(**LARGE, splits=2).with_dependent(True)
"""Large blocks, early where the defaults are."""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter's loads are traced, not a device's")
@torch.inference_mode()
def test_reads_before_the_wait_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=3, heads=2, vocab_size=40)
    model = random_model(replace(config, decoder=decoder), torch.device("cpu"), torch.float32, seed=2)
    step = DecodeStep(pack(model.decoder), decoder, 24, torch.float32, NO_TOKEN, LAUNCHES)
    step.cache.keys.fill_(0.5)
    step.cache.values.fill_(0.5)
    step.begin((3, 9, 4, 9, 4, 7, 3, 9), limit=6, ngram=3)
    trace = Trace(monkeypatch, step)
    for _ in range(2):
        for name, launch in step.kernels():
            trace.launches.append(Accesses(name))
            launch()

    names = list(dict.fromkeys(at.name for at in trace.launches))
    assert list(hazards(trace.launches, set())) == []
    sequence = [(name, LAUNCHES.of(name)) for name, _ in step.kernels()]
    defaults = {name for name, at in sequence if at.early}
    assert len(defaults) > 5 and list(hazards(trace.launches, defaults)) == []
    found = 0
    for early in (set(pair) for size in (1, 2, 3) for pair in combinations(names, size)):
        by_name = [(name, replace(at, early=name in early)) for name, at in sequence]
        expected = set(hazards(trace.launches, early))
        assert {kernel for kernel, _ in unready(by_name, LAUNCHES.read_before_wait())} == expected, early
        found += bool(expected)
    assert found > 5


@torch.inference_mode()
def test_a_step_that_would_read_too_soon_is_refused() -> None:
    """By hand: embed_token early, so queries, keys and values may meet the state that take_best writes."""
    config = parse_config(tiny_config())
    model = random_model(config, torch.device("cpu"), torch.float32, seed=2)
    launches = replace(LAUNCHES, embed_token=replace(LAUNCHES.embed_token, early=True))
    with pytest.raises(ValueError, match="qkv_rotary may start before take_best has ended"):
        DecodeStep(pack(model.decoder), config.decoder, 24, torch.float32, NO_TOKEN, launches)
