"""The search for launches against a device whose times are made up."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.kernels.launch import Launch
from dsocr_core.measure.decode_step import Steps
from dsocr_core.measure.sweep_decode import BLOCKS, ROUNDS, as_written, search, sweep
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

START = StepLaunches().with_dependent(True)
GATE_UP = Launch(2, 1, True, programs=1584)


def cost_us(launches: StepLaunches) -> float:
    """By hand: gate_up 2 x 1 in 1,584 programs saves 40, down 2 x 4 another 20, output early 3."""
    if launches.qkv_rotary.rows == 1:
        raise RuntimeError("out of resource: registers\nsecond line")
    cost = 500.0 - 40 * (launches.gate_up == GATE_UP) - 20 * (launches.mixture_down.rows == 2)
    return cost - 3 * launches.attention_output.early


def device(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
    return [cost_us(launches) + 0.1 * run for run in range(runs)], [4, 5, 6]


def test_the_search_adopts_what_is_faster() -> None:
    said: list[str] = []
    best, tried = search(START, device, seconds=60, say=said.append)
    assert [t.change for t in tried if t.adopted] == [
        "gate_up 2 x 1, 1584 programs",
        "mixture_down 2 x 2",
        "attention_output early",
    ]
    assert best == replace(
        START, gate_up=GATE_UP, mixture_down=replace(START.mixture_down, rows=2, warps=2),
        attention_output=replace(START.attention_output, early=True),
    )  # fmt: skip
    assert cost_us(best) == 437.0
    adopted = next(t for t in tried if t.adopted and t.change == "mixture_down 2 x 2")
    assert adopted.gain_us == pytest.approx(20) and adopted.spread_us == pytest.approx(0.2)
    assert any("qkv_rotary 1 x 1: not possible, out of resource: registers" in line for line in said)


def test_noise_is_not_an_improvement() -> None:
    """Every timing is 1 us better than the last, by its runs' spread of 4 us."""
    times = (500.0 - number for number in count())

    def noisy(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        start = next(times) if runs else 0.0
        return [start + run for run in range(runs)], [1]

    best, tried = search(START, noisy, seconds=60, rounds=("splits",), say=lambda line: None)
    assert best == START and tried and not any(t.adopted for t in tried)


def test_the_search_ends_in_time() -> None:
    said: list[str] = []
    now = 0.0

    def slow(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        nonlocal now
        now += 10.0 if runs else 0.0
        return device(launches, runs)

    _, tried = search(START, slow, 200, clock=lambda: now, say=said.append)
    assert 10 <= len(tried) <= 20
    assert now <= 200 + 30
    assert said[-1].startswith("out of time, not tried: ") and said[-1].endswith(ROUNDS[-1])


def test_launches_are_written_as_the_step_has_them() -> None:
    written = as_written(replace(START, mixture_down=Launch(2, 8, True, early=True, programs=264)))
    assert "    mixture_down: Launch = field(default=Launch(2, warps=8, early=True, programs=264))" in written
    assert "    splits: int = 8" in written


def test_a_sweep_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    summary = sweep(START, device, 60, ("gate_up", "mixture_down"))
    lines = capsys.readouterr().out.splitlines()
    assert summary["adopted"] == ["gate_up 2 x 1, 1584 programs", "mixture_down 2 x 2"]
    assert (summary["start_us"], summary["best_us"]) == (pytest.approx(500.1), pytest.approx(440.1))
    assert summary["same_tokens_without_overlap"] is True
    assert summary["launches"]["mixture_down"]["rows"] == 2
    # In order of gain.
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("change")) + 1 :]
    assert table[0].startswith("gate_up 2 x 1, 1584 programs") and table[0].endswith("adopted")
    assert table[1].startswith("mixture_down 2 x 2")


def test_a_device_that_answers_no_more_still_leaves_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    def dying(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        if launches.gate_up == GATE_UP or dead:
            dead.append(launches)
            raise RuntimeError("an illegal memory access was encountered")
        return device(launches, runs)

    dead: list[StepLaunches] = []

    def timer(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        return dying(launches, runs) if runs else ([], [])

    summary = sweep(START, timer, 60, ("gate_up",))
    lines = capsys.readouterr().out.splitlines()
    assert "not timed once more: an illegal memory access was encountered" in lines
    assert summary["adopted"] == []


@torch.inference_mode()
def test_the_bench_times_whole_tokens() -> None:
    """The real step, so that the search's timer is run before a device does it."""
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=2, heads=2, vocab_size=40)
    model = random_model(replace(config, decoder=decoder), torch.device("cpu"), torch.bfloat16, seed=2)
    bench = Steps(decoder, PackedDecoder.of(model.decoder), context=6, tokens=3)
    sizes: dict[str, Any] = {name: Launch(64) for name in BLOCKS}
    launches = StepLaunches(**sizes, splits=2)
    assert bench.time_launches(launches, 0) == ([], [])
    times, tokens = bench.time_launches(launches, 1)
    assert len(times) == 1 and times[0] > 0
    # Two of the three tokens: the first one stands for the prefill's.
    assert len(tokens) == 2 and all(0 <= token < 40 for token in tokens)
    assert bench.kernel_bytes().keys() >= {name for name, _ in bench.step(launches).kernels()}
