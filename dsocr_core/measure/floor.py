"""Recorded benches beside the least time of each stage, commit beside commit.

    dsocr measure floor abdb8c6 ebe3f5e --config CONFIG --svg floor.svg

The floor of a stage is its bytes over the copy bandwidth or its FLOPs over the matrix product rate, whichever
takes longer. Each rate is the highest that a bench in the history measured on a device of that name, so that
commits have one floor. Bytes are those that have to move however the
operators are fused (`analytic_model.roofline`); FLOPs are those that the result needs. A page's floor is that
of vision, prefill and decode, as they wait for each other; the host's work has none. Figures come from
`bench.json` of runs in the history.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from analytic_model.hardware import Hardware, measured_hardware
from analytic_model.policy import Dtype, Policy
from analytic_model.predict import Prediction, predict
from analytic_model.roofline import bound, least_work, prefill_ms
from analytic_model.workload import Workload
from dsocr_core.base.console import OK, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import parse_json, read_bytes
from dsocr_core.measure.floor_picture import draw
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import inside_prefill, load_config, row_of
from dsocr_core.models.stages import Stage
from dsocr_core.runs.store import SEED_LOCATION, History
from dsocr_core.settings import Settings, history_location

_FILE_LIMIT = 16 * 1024 * 1024
"""Bytes of a bench.json."""
_ALIKE = 0.01
"""Recorded FLOPs of SAM and those by the given sizes differ by less, or the sizes are another model's."""


@dataclass(frozen=True)
class StageFloor:
    """A stage as one commit's bench timed it, beside the least time it can take."""

    stage: str
    commit: str
    floor_ms: float
    measured_ms: float
    share: float
    """Share of 1. Above 1 a figure is wrong."""


def run(
    commits: tuple[str, ...],
    *,
    config: Path,
    preset: str = "gundam",
    svg: Path | None = None,
    history: str | None = None,
    json: bool = False,
) -> int:
    """Compare recorded benches with the least time of each stage: CSV, and a picture.

    Args:
        commits: commits with a recorded bench of the fast engine, the oldest first
        config: config.json of the recorded model
        preset: of the recorded benches
        svg: write the picture there
    """
    sizes = load_config(config)
    where = history_location(Settings(history=history) if history else Settings())
    benches = recorded_benches(where, preset)
    floors = [floor for commit in commits for floor in floors_of(commit, benches, sizes)]
    if svg is not None:
        try:
            svg.write_text(draw(floors, commits), encoding="utf-8")
        except OSError as error:
            raise DsocrError(f"{svg}: cannot be written ({error.strerror}); give --svg another") from error
        words = f"written to {svg}"
        Console(stderr=True).print(words, style="dim", markup=False, highlight=False)
    if json:
        print_json({"floors": [asdict(floor) for floor in floors]})
    else:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(field.name for field in fields(StageFloor))
        for floor in floors:
            table.writerow(f"{value:.4g}" if isinstance(value, float) else value for value in astuple(floor))
    return OK


Row = tuple[str, float, float]
"""Stage, its floor and its measured time in ms."""


@dataclass(frozen=True)
class Recorded:
    run_id: str
    commit: str
    bench: dict[str, Any]
    """Its bench.json."""


def recorded_benches(location: str, preset: str) -> list[Recorded]:
    """Benches of the fast engine in the history and among the examples, oldest first. Raises DsocrError.

    As in a trend, without those that had to share the machine.
    """
    own = "://" not in location and Path(location).resolve() == SEED_LOCATION
    found = []
    with History(location, () if own else (SEED_LOCATION,)) as history:
        runs = history.runs(presets=[preset], profiled=False, contended=False)
        fast = set(runs.loc[runs["engine"].str.startswith("fast", na=False), "run_id"])
        for run_id in history.run_ids():
            if run_id in fast and "bench.json" in history.file_names(run_id):
                content = read_bytes(history.file(run_id, "bench.json"), _FILE_LIMIT)
                recorded = Recorded(run_id, history.record(run_id).git_commit or "", parse_json(content))
                if not recorded.bench.get("nvtx_only"):  # nothing was timed there
                    found.append(recorded)
    return found


def floors_of(commit: str, benches: Sequence[Recorded], sizes: ModelConfig) -> list[StageFloor]:
    """Make the floors of the newest benches of that commit, one page at a time and many together.

    Raises DsocrError where there is none, where one is incomplete, or where the sizes are another model's.
    """
    found: dict[str, StageFloor] = {}
    devices = [_device(recorded) for recorded in benches]
    for recorded in benches:
        if recorded.commit.startswith(commit):
            device = _fastest(_device(recorded), devices)
            with _whole(recorded):
                for stage, floor, measured in _rows(recorded.bench, sizes, device):
                    found[stage] = StageFloor(stage, commit, floor, measured, floor / measured)
    if not found:
        there = ", ".join(dict.fromkeys(recorded.commit[:7] for recorded in benches)) or "none"
        raise DsocrError(f"commit {commit[:60]}: no bench of the fast engine is recorded; there is {there}")
    return list(found.values())


@contextmanager
def _whole(recorded: Recorded) -> Iterator[None]:
    """A field that is not there, or is no number, as one line."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DsocrError(f"{recorded.run_id}/bench.json: not whole ({reason}); bench again") from error


def _device(recorded: Recorded) -> Hardware:
    with _whole(recorded):
        device = recorded.bench["device"]
        flops, moved = device["matmul_flops_per_s"], device["copy_bytes_per_s"]
        return measured_hardware(flops / 1e12, moved / 1e9, f"{device['name']}, {device['matmul_dtype']}")


def _fastest(device: Hardware, devices: Sequence[Hardware]) -> Hardware:
    alike = [other for other in devices if other.name == device.name]
    return measured_hardware(
        max(other.bfloat16_tflops or 0.0 for other in alike),
        max(other.bandwidth_gb_s for other in alike),
        device.name,
    )


def _rows(bench: Mapping[str, Any], sizes: ModelConfig, device: Hardware) -> list[Row]:
    [engine] = (engine for engine in bench["engines"] if engine["name"] == "fast")
    # The first benches had no streams.
    several = engine.get("streams", bench["batch"]) > 1
    return list((_batch if several else _single)(_prediction(bench, engine, sizes), engine, device))


def _single(prediction: Prediction, engine: Mapping[str, Any], device: Hardware) -> Iterator[Row]:
    dtype = prediction.policy.dtype
    measured = {name: stage["milliseconds"]["median"] for name, stage in engine["stages"].items()}
    for stage in prediction.stages:
        if stage not in inside_prefill() or stage == Stage.VISION_FUSION:
            continue
        yield stage.value, bound(prediction.stages[stage], device, dtype).time_ms, measured[stage.value]
    # The clock of prefill runs while vision does: the language model's own time is the rest.
    own = measured["prefill"] - sum(measured.get(stage.value, 0.0) for stage in inside_prefill())
    yield "prefill", bound(prediction.stages[Stage.PREFILL], device, dtype).time_ms, own
    decode = bound(prediction.stages[Stage.DECODE], device, dtype).time_ms
    yield "decode", decode, measured["decode"]
    page = prefill_ms(prediction, device) + decode
    yield "whole page", page, 1e3 / engine["pages_per_s"]["median"]


def _batch(prediction: Prediction, engine: Mapping[str, Any], device: Hardware) -> Iterator[Row]:
    """A step in which every stream was live, and a page's share of the whole pass."""
    streams, step = engine["streams"], engine["ms_per_token"]["median"]
    floor = 1e3 * engine["bytes_per_token"] * streams / device.bandwidth
    yield f"decode, {streams} pages", floor, step
    page = prefill_ms(prediction, device) + prediction.workload.decode_steps * floor / streams
    yield f"whole page, {streams} pages", page, 1e3 / engine["pages_per_s"]["median"]


def _prediction(bench: Mapping[str, Any], engine: Mapping[str, Any], sizes: ModelConfig) -> Prediction:
    width, height = bench["size"]
    work = Workload.from_image(
        width, height, bench["preset"], decode_tokens=engine["new_tokens"], family=row_of(sizes)
    )
    work = replace(work, prompt_tokens=engine["prompt_tokens"] - work.image_tokens)
    counted = Policy(ignore_torch_unsupported_flops=False, dtype=cast(Dtype, engine["dtype"]))
    flops, recorded = predict(sizes, work, counted).stages[Stage.SAM].cost.flops, engine["stages"]["sam"]
    if abs(flops - recorded["flops"]) > _ALIKE * flops:
        raise DsocrError(
            f"SAM took {recorded['flops']:.3g} FLOPs in the recorded bench, by --config {flops:.3g}: "
            "give the config.json of the recorded model"
        )
    return predict(sizes, work, least_work(counted))
