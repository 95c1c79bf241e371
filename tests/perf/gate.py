"""Gates of a slowdown that was planted: how often the gate finds it, and names the stage.

    python -m tests.perf.gate --to DIR --gates 10 --extra 0 5 10
    python -m tests.perf.gate --to DIR --gates 10 --rounds 4 --config CONFIG     # on a GPU, random weights
    python -m tests.perf.gate --judge DIR

Measured on a machine that does nothing else; judged anywhere. Copies of the code differ in SAM, which repeats
some of its own work: each block's feed-forward part, on as many of the view's tokens as take so many percent
of SAM's time; on a GPU it waits so long. Gates run side by side, each on cores, or a card, of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.fast.cuda_graph import recorder_for
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.vision import SamTower
from dsocr_core.measure.device import milliseconds
from dsocr_core.measure.gate import FEWEST_ROUNDS, Gated, Question, judged_processes, looks, metrics_of
from dsocr_core.measure.processes import Code, Measured, Work, rounds
from dsocr_core.settings import Settings

ON_CPU = Work(Settings(preset="tiny", device="cpu"), size="512x512", tokens=16, pages=5, passes=3)
ON_GPU = Work(Settings(preset="base", device="cuda"), "fast", size="1024x1024", tokens=4, pages=8, passes=5)
_PLANTS = {
    "cpu": (
        "models/blocks/sam.py",
        "            x = block(x)  # (B, H, W, C)\n",
        "            block.mlp(block.norm2(x.flatten(1, 2)[:, :{}]))\n",
    ),
    "cuda": (
        "engine/fast/vision.py",
        "        return self._neck(x + y, groups)\n",
        "        torch.cuda._sleep({})\n",
    ),
}
"""File, the line before which more is done, and what: work on so many tokens, or so many cycles of waiting.
The fast engine's vision waits for no host."""
_SIDES = {"cpu": 512, "cuda": 1024}
"""Pixels of the only view, of `tiny` and `base`."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Gates of slowdowns that were planted in SAM.")
    parser.add_argument("--to", type=Path, metavar="DIR", help="measure, and write it there")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge what was measured there")
    parser.add_argument("--gates", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each gate")
    parser.add_argument("--extra", type=float, nargs="+", default=[5.0, 10.0], help="percent of SAM's time")
    parser.add_argument("--config", help="measure on a GPU, with random weights of this config.json")
    parser.add_argument(
        "--lanes", type=int, default=1, help="gates at a time; on GPUs as many as cards at most"
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="no round is begun after so many")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    if options.to:
        measure(options)
    if options.judge:
        judge(options.judge)
    return 0


# --- measuring ------------------------------------------------------------------------------------


def work_of(config: str | None) -> Work:
    if config is None:
        return ON_CPU
    return replace(ON_GPU, settings=replace(ON_GPU.settings, checkpoint=f"random:{config}"))


def measure(options: argparse.Namespace) -> None:
    until = time.monotonic() + options.seconds
    options.to.mkdir(parents=True)
    with ProcessPoolExecutor(options.lanes, multiprocessing.get_context("spawn")) as pool:
        lanes, work = range(options.lanes), work_of(options.config)
        shares = list(pool.map(shares_of_sam, lanes, [options.lanes] * options.lanes, [work] * options.lanes))
        share = {amount: float(np.median([each[amount] for each in shares])) for amount in shares[0]}
        print("share of SAM's time, by tokens or cycles:", share, flush=True)
        plants = {
            extra: round(np.interp(extra / 100, [*share.values()], [*share])) for extra in options.extra
        }
        print("planted:", plants, flush=True)
        sides = [
            planted(options.to / "code", extra, amount, work.settings.device)
            for extra, amount in {0.0: 0, **plants}.items()
        ]
        lane_gates = [range(lane, options.gates, options.lanes) for lane in lanes]
        jobs = [
            pool.submit(
                lane_of_gates, lane, options.lanes, gates, sides, work, options.to, options.rounds, until
            )
            for lane, gates in zip(lanes, lane_gates, strict=True)
        ]
        for job in jobs:
            job.result()
    shutil.rmtree(options.to / "code")


def take_cores(lane: int, lanes: int) -> None:
    """Give this process and what it starts one thread, cores and a card of its own, where several run."""
    cores = sorted(os.sched_getaffinity(0))
    if lanes > 1 and len(cores) >= lanes:
        each = len(cores) // lanes
        os.sched_setaffinity(0, cores[lane * each : (lane + 1) * each])
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = str(lane)
        torch.set_num_threads(1)


@torch.inference_mode()
def shares_of_sam(lane: int, lanes: int, work: Work, repeats: int = 40) -> dict[int, float]:
    """Times of what is planted, by tokens or cycles, beside SAM's, each timed in turn with it: medians."""
    take_cores(lane, lanes)
    device = torch.device(work.settings.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    sam: Any = load_checkpoint(work.settings.checkpoint, device, dtype).model.sam
    side = _SIDES[device.type]
    pixels = torch.randn(1, 3, side, side, device=device, dtype=dtype)
    recorder, tower = recorder_for(device), sam
    if recorder:
        tower, amounts = SamTower(sam, Ops(True)), [0, 100_000, 300_000, 600_000]
    else:
        amounts = [0, *((side // 16) ** 2 // part for part in (32, 8, 4))]
    x = torch.randn(1, amounts[-1], sam.pos_embed.shape[-1]) if recorder is None else None

    def whole() -> None:
        tower([pixels] if recorder else pixels)

    def more(amount: int) -> None:
        if x is None:
            torch.cuda._sleep(amount)  # type: ignore[no-untyped-call]
        else:
            for block in sam.blocks:
                block.mlp(block.norm2(x[:, :amount]))

    def ready(run: Callable[[], None]) -> Callable[[], None]:
        return recorder.recorded(run) if recorder else run

    found, of_whole = dict[int, float](), ready(whole)
    for amount in amounts:
        replay = ready(functools.partial(more, amount))
        both = [(milliseconds(of_whole, device), milliseconds(replay, device)) for _ in range(repeats)]
        of_sam, of_more = np.median(both, axis=0)
        found[amount] = float(of_more / of_sam)
    # What asking for nothing takes is of the asking: a plant stands within what is asked for anyway.
    return {amount: share - found[0] for amount, share in found.items()}


def planted(folder: Path, extra: float, amount: int, device: str) -> Code:
    """A copy of the code in which SAM does more."""
    root = folder / f"extra-{extra:g}"
    for package in ("dsocr_core", "analytic_model"):
        shutil.copytree(PROJECT_ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data").symlink_to(PROJECT_ROOT / "data")  # the usual checkpoint is that of the code
    name, before, more = _PLANTS[device]
    file = root / "dsocr_core" / name
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, (more.format(amount) if amount else "") + before))
    return Code(f"{extra:g}", root)


def lane_of_gates(
    lane: int, lanes: int, gates: Sequence[int], sides: Sequence[Code], work: Work, to: Path, most: int,
    until: float,
) -> None:  # fmt: skip
    """Measure gates round by round, so that all have as many; what each has is written after every round."""
    take_cores(lane, lanes)
    going = {
        gate: rounds(sides, work, str(to / f"gate-{gate}"), most, threading.Event(), say=lambda _: None)
        for gate in gates
    }
    made: dict[int, list[list[dict[str, Any]]]] = {gate: [] for gate in gates}
    for number in range(most):
        for gate in gates:
            started = time.monotonic()
            if started > until:
                return
            measured = next(going[gate])
            made[gate].append([{"run": each.run_id, "bench": dict(each.bench)} for each in measured])
            text = json.dumps({"sides": [code.name for code in sides], "rounds": made[gate]})
            (to / f"gate-{gate}.json").write_text(text)
            print(f"gate {gate}, round {number}: {time.monotonic() - started:.1f} s", flush=True)


# --- judging --------------------------------------------------------------------------------------


def judge(folder: Path, neutral: float = 0.03) -> None:
    """Print each gate's outcome as the command would have told it, and how many found what was planted."""
    from dsocr_core.runs.store import History

    found: dict[str, list[Gated]] = {}
    for file in sorted(folder.glob("gate-*.json")):
        document = json.loads(file.read_text())
        with History(folder / file.stem) as history:
            for place, name in enumerate(document["sides"][1:], 1):
                pairs = [
                    tuple(Measured(each["run"], each["bench"]) for each in (one[0], one[place]))
                    for one in document["rounds"]
                ]
                if len(pairs) >= FEWEST_ROUNDS:
                    found.setdefault(name, []).append(gated := hold_recorded(history, pairs, neutral))
                    print(f"{file.stem} +{name} %: {line(gated)}")
    for name, gates in found.items():
        slower = [gated for gated in gates if gated.judged.metrics("slower")]
        named = [gated for gated in slower if "sam" in gated.judged.metrics("slower")]
        print(f"+{name} %: {len(slower)} of {len(gates)} slower, {len(named)} with the stage named")


def hold_recorded(history: Any, pairs: Sequence[tuple[Measured, ...]], neutral: float) -> Gated:
    """Look at recorded rounds as the gate does, as many as it would have measured."""
    at = looks(len(pairs))
    engine = pairs[0][0].bench["engines"][0]["name"]
    metrics = metrics_of(pairs[0][0].bench, engine)
    # The other lanes are other programs to each.
    question = Question(metrics, neutral, len(at), contended=True)
    for number in at:
        of_a, of_b = zip(*pairs[:number], strict=True)
        gated = judged_processes(
            history, of_a, of_b, question, (engine,) * 2, paired=True, names=("before", "after"),
            rounds=(number, len(pairs)),
        )  # fmt: skip
        if gated.judged.answered:
            break
    return gated


def line(gated: Gated) -> str:
    rows = ", ".join(
        f"{row.metric} {row.verdict} {row.ratio or 0:.3f} ({row.low or 0:.3f} to {row.high or 0:.3f})"
        for row in gated.judged.rows
    )
    return f"{gated.judged.verdict} after {gated.rounds} rounds: {rows}"


if __name__ == "__main__":
    sys.exit(main())
