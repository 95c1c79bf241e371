"""The search for launches against a device whose times are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest
import torch

from dsocr_core.config import parse_config
from dsocr_core.engine.fast.measure import Bench
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.engine.fast.sweep_decode import EARLY, ROUNDS, as_written, search, sweep, used, variants
from dsocr_core.kernels.launch import Launch
from dsocr_core.model.weights import random_model
from tests.support.seeded_weights import tiny_config

START = StepLaunches().with_dependent(True)


def cost_us(launches: StepLaunches) -> float:
    """By hand: the joined order saves 40, down 2 x 4 another 20, route early 3, a cache hint costs 5."""
    if launches.qkv_rotary.rows == 1:
        raise RuntimeError("out of resource: registers\nsecond line")
    cost = 500.0 - 40 * (launches.order == "joined") + 5 * (launches.ahead > 0)
    return cost - 20 * (launches.down == Launch(2, 4, True)) - 3 * launches.route.early


def device(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
    return [cost_us(launches) + 0.1 * run for run in range(runs)], [4, 5, 6]


def test_the_search_keeps_what_is_faster() -> None:
    said: list[str] = []
    best, tried = search(START, device, seconds=60, say=said.append)
    assert [t.change for t in tried if t.kept] == ["order joined", "down 2 x 4", "route early"]
    assert best == replace(
        START, order="joined", down=Launch(2, 4, True), route=replace(START.route, early=True)
    )
    assert cost_us(best) == 437.0
    kept = next(t for t in tried if t.change == "down 2 x 4")
    assert kept.gain_us == pytest.approx(20) and kept.spread_us == pytest.approx(0.4)
    assert any("qkv_rotary 1 x 1: not possible, out of resource: registers" in line for line in said)


def test_noise_is_not_an_improvement() -> None:
    """Every timing is 1 us better than the last, by its runs' spread of 4 us."""
    times = (500.0 - number for number in count())

    def noisy(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        start = next(times) if runs else 0.0
        return [start + run for run in range(runs)], [1]

    best, tried = search(START, noisy, seconds=60, rounds=("splits",), say=lambda line: None)
    assert best == START and tried and not any(t.kept for t in tried)


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


@pytest.mark.parametrize("order", ["shared first", "router first", "joined"])
def test_variants_differ_in_one_field_that_is_used(order: str) -> None:
    start = replace(START, order=order)
    for field in ROUNDS:
        for name, launches in variants(field, start):
            if field == "early together":
                continue
            changed = [key for key, value in vars(launches).items() if value != getattr(start, key)]
            assert len(changed) == 1 and changed[0] in name
            if isinstance(getattr(start, changed[0]), Launch):
                assert changed[0] in used(start)
                # Dependent launch stays as it was.
                assert getattr(launches, changed[0]).dependent


def test_launches_are_written_as_the_step_has_them() -> None:
    written = as_written(replace(START, down=Launch(2, 8, True, early=True, programs=264), order="joined"))
    assert "    down: Launch = field(default=Launch(2, warps=8, early=True, programs=264))" in written
    assert '    order: MlpOrder = "joined"' in written
    assert "    splits: int = 12" in written


def test_a_sweep_ends_with_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(START, device, 60, ("order", "down"))
    lines = capsys.readouterr().out.splitlines()
    summary = json.loads(lines[-1])
    assert summary["kept"] == ["order joined", "down 2 x 4"]
    assert (summary["start_us"], summary["best_us"]) == (pytest.approx(500.2), pytest.approx(440.2))
    assert summary["same_tokens_without_overlap"] is True
    assert summary["launches"]["down"]["rows"] == 2
    # In order of gain.
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("change")) + 1 :]
    assert table[0].startswith("order joined") and table[0].endswith("kept")
    assert table[1].startswith("down 2 x 4")


def test_a_device_that_answers_no_more_still_leaves_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    def dying(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        if launches.order == "joined" or dead:
            dead.append(launches)
            raise RuntimeError("an illegal memory access was encountered")
        return device(launches, runs)

    dead: list[StepLaunches] = []

    def timer(launches: StepLaunches, runs: int) -> tuple[list[float], list[int]]:
        return dying(launches, runs) if runs else ([], [])

    sweep(START, timer, 60, ("down", "order"))
    lines = capsys.readouterr().out.splitlines()
    assert "not timed once more: an illegal memory access was encountered" in lines
    assert json.loads(lines[-1])["kept"] == []


def test_rounds_name_fields() -> None:
    held = set(vars(START)) | set(EARLY) | {"early together"}
    assert set(ROUNDS) <= held


@torch.inference_mode()
def test_the_bench_times_whole_tokens() -> None:
    """The real step, so that the search's timer is run before a device does it."""
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=2, heads=2, vocab_size=40)
    model = random_model(replace(config, decoder=decoder), torch.device("cpu"), torch.bfloat16, seed=2)
    bench = Bench(decoder, PackedDecoder.of(model.decoder), context=6, tokens=3)
    names = [name for name, value in vars(StepLaunches()).items() if isinstance(value, Launch)]
    launches = StepLaunches(**{name: Launch(64) for name in names}, splits=2, order="joined")
    assert bench.time_launches(launches, 0) == ([], [])
    times, tokens = bench.time_launches(launches, 1)
    assert len(times) == 1 and times[0] > 0
    # Two of the three tokens: the first one stands for the prefill's.
    assert len(tokens) == 2 and all(0 <= token < 40 for token in tokens)
    assert bench.kernel_bytes().keys() >= {name for name, _ in bench.step(launches).kernels()}
