"""Runs of the history from what `recorder` wrote on a GPU machine; each says command, commit and machine."""

from __future__ import annotations

import gzip
import hashlib
import json
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data.history_seed.recorder import FORMAT
from data.history_seed.recordings import PROFILES, RECORDINGS, ProfileRecording, Recording
from dsocr_core.cli.main import build_parser
from dsocr_core.cli.options import settings_of
from dsocr_core.errors import DsocrError
from dsocr_core.history.importers.ncu import launch_rows
from dsocr_core.history.importers.ncu_csv import Launch, launches
from dsocr_core.history.readings import Row, reading_table, timing_rows
from dsocr_core.history.record import RunRecord, about_results, json_bytes, time_of
from dsocr_core.history.writer import RunWriter
from dsocr_core.measure.bench import DRAWN
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import VENDOR, OcrResult, result_from_jsonable
from dsocr_core.settings import PROJECT_ROOT, Settings

WITHOUT_TEXT = ("text_raw", "token_ids", "token_texts", "top_ids", "top_logits", "boxes", "exact")
"""Tables that a bench leaves empty: what random weights write says nothing."""
_STATE = {
    "sm_clock_mhz": "gpu_sm_mhz",
    "memory_clock_mhz": "gpu_memory_mhz",
    "power_w": "gpu_power_w",
    "temperature_c": "gpu_temperature_c",
}
"""Names of the GPU's state in a record's environment, as a run that is recorded today has them."""


def write_recorded(recordings: Path, root: Path) -> list[str]:
    """Runs of every recording in the directory, written at `root`; their ids. Raises DsocrError."""
    written = []
    for recording in RECORDINGS:
        file = recordings / f"{recording.name}.json.gz"
        if file.is_file():
            written += [_write(root, *run) for run in _runs(recording, _read(file))]
    for profile in PROFILES:
        if (recordings / f"{profile.name}.csv.gz").is_file():
            written.append(write_profile(root, recordings, profile))
    return written


def _read(file: Path) -> dict[str, Any]:
    try:
        recorded = json.loads(gzip.decompress(file.read_bytes()))
        if recorded["format"] != FORMAT or recorded["exit_code"] not in (0, 1):
            raise ValueError(f"format {recorded['format']}, exit code {recorded['exit_code']}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DsocrError(f"{file}: not a whole recording ({error}); record it again") from error
    return dict(recorded)


Run = tuple[RunRecord, list[OcrResult], dict[str, Any] | None]


def _runs(recording: Recording, recorded: Mapping[str, Any]) -> Iterator[Run]:
    """A run for a comparison; of a bench one for each engine, as `bench --save` has them."""
    results = [result_from_jsonable(row) for row in recorded["results"]]
    bench = recorded["bench"]
    if bench is None:
        yield _record(recording, recorded, results, recording.note), results, None
        return
    for engine in bench["engines"]:
        of_engine = [result for result in results if _engine(result) == engine["name"]]
        note = f"{recording.note}; {_figures(bench, engine)}"
        record = _record(recording, recorded, of_engine, note)
        if engine.get("streams", 1) > 1:  # times of a page hold others' shares: its own series
            record = replace(record, engine=f"{engine['name']}, {engine['streams']} pages together")
        yield record, of_engine, bench


def _engine(result: OcrResult) -> str:
    return VENDOR if result.backend == VENDOR else result.environment["engine"]


def _figures(bench: Mapping[str, Any], engine: Mapping[str, Any]) -> str:
    """What the bench printed of an engine; times of pages read together do not add up to its rates."""
    tokens, pages = engine["tokens_per_s"]["median"], engine["pages_per_s"]["median"]
    prefill = engine["stages"]["prefill"]["milliseconds"]["median"]
    together = f"{engine['streams']} pages together, " if engine.get("streams", 1) > 1 else ""
    return f"bench: {together}{tokens:,.0f} tokens/s decoded, prefill {prefill:.3g} ms, {pages:.3g} pages/s"


def _record(
    recording: Recording, recorded: Mapping[str, Any], results: Sequence[OcrResult], note: str
) -> RunRecord:
    about = about_results(results)
    moment = time_of(recorded["created"])
    name = hashlib.sha256(f"{recording.name} {about['backends']}".encode()).hexdigest()[:8]
    if recording.code_from is not None:
        note += (
            f" (commit {recording.commit} with the embedded checkpoint's own code of {recording.code_from})"
        )
    return RunRecord(
        id=f"{moment:%Y%m%d-%H%M%S}-{name}",
        created=recorded["created"],
        source="dsocr",
        command=recorded["command"],
        git_commit=recorded["commit"],
        git_dirty=recording.code_from is not None,
        versions=recorded["versions"],
        settings=asdict(_settings(recorded["command"])),
        notes=note,
        **about | {"environment": about["environment"] | {"machine": _machine(recorded)}},
    )


def _settings(command: str) -> Settings:
    """The settings that the command means today."""
    parser = build_parser()
    options = parser.parse_args(shlex.split(command)[3:])
    chosen = parser.instantiate(options)[options.command]
    settings = settings_of(chosen, skip=("engine",) if options.command == "bench" else ())
    return replace(settings, checkpoint=settings.checkpoint.removeprefix(f"{PROJECT_ROOT}/"))


def _machine(recorded: Mapping[str, Any]) -> dict[str, Any]:
    machine = dict(recorded["machine"])
    machine["load_1m"] = machine.pop("load_average_before")
    state = recorded["gpu_state"] or {}
    return machine | {name: state[key]["median"] for key, name in _STATE.items() if key in state}


def _write(root: Path, record: RunRecord, results: Sequence[OcrResult], bench: dict[str, Any] | None) -> str:
    with RunWriter(root, record) as run:
        if bench is not None:
            for page, result in _passes(results, bench["pages"] if "pages" in bench else bench["batch"]):
                for table, rows in _untold(page, result).items():
                    run.add(table, rows)
                run.add("stage_flops", _flop_rows(page, result, bench))
            (run.directory / "bench.json").write_bytes(json_bytes(bench, indent=1) + b"\n")
            return record.id
        for result in results:
            run.add_result(result.request.name, result)
        for comparison in _comparisons(results):
            if comparison.report is not None:
                run.add_parity(comparison.request.name, comparison.report)
    return record.id


def write_profile(root: Path, recordings: Path, recording: ProfileRecording) -> str:
    """Launches, each timed alone by Nsight Compute, and all that it says of them, as a run; its id.

    Beside the table of details, as CSV, lies what it was made with, as JSON. Raises DsocrError.
    """
    table, engine = recordings / f"{recording.name}.csv.gz", recording.profile.engine
    try:
        about = json.loads((recordings / f"{recording.name}.json").read_bytes())
        taken = launches(gzip.decompress(table.read_bytes()).decode())[: recording.taken]
        times: dict[str, list[float]] = {}
        for launch in taken:
            times.setdefault(launch.kernel, []).append(_nanoseconds(launch))
        moment = time_of(about["created"])
        record = RunRecord(
            id=f"{moment:%Y%m%d-%H%M%S}-{recording.name}",
            created=about["created"],
            source="dsocr",
            command=about["command"],
            backends=(engine,),
            engine=engine,
            device="cuda",
            gpu=about["machine"].pop("gpu"),
            dtype="bfloat16",
            preset="gundam",
            profiled=True,
            git_commit=about["commit"],
            git_dirty=False,
            versions=about["versions"],
            environment={"machine": about["machine"]},
            notes=recording.note,
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DsocrError(f"{table}: not a whole profile ({error})") from error
    with RunWriter(root, record) as run:
        run.add("kernels", _kernel_rows(times, recording.profile.stage.value))
        for name, rows in launch_rows(taken).items():
            run.add(name, rows)
    return record.id


def _nanoseconds(launch: Launch) -> float:
    duration = next(metric for metric in launch.metrics if metric.name == "Duration")
    if duration.value is None or duration.unit is None:
        raise ValueError(f"launch {launch.id} has no duration")
    return duration.value * {"ns": 1.0, "us": 1e3, "ms": 1e6}[duration.unit]


def _kernel_rows(times: Mapping[str, Sequence[float]], stage: str) -> list[Row]:
    total = sum(map(sum, times.values()))
    return [
        {
            "stage": stage, "name": name, "total_ns": sum(found), "instances": len(found),
            "avg_ns": statistics.fmean(found), "med_ns": statistics.median(found), "min_ns": min(found),
            "max_ns": max(found), "stddev_ns": statistics.pstdev(found),
            "time_percent": 100 * sum(found) / total,
        }
        for name, found in sorted(times.items(), key=lambda item: -sum(item[1]))
    ]  # fmt: skip


def _passes(results: Sequence[OcrResult], pages: int) -> Iterator[tuple[str, OcrResult]]:
    """Results under the names that `bench --save` gives them."""
    for number, result in enumerate(results):
        turn = number // pages if pages <= DRAWN else number
        yield f"{result.request.image.stem} #{turn + 1}", result


def _untold(page: str, result: OcrResult) -> dict[str, list[Row]]:
    table = reading_table(page, result, None)
    [row] = table.to_pylist()
    return {"readings": [{**row, **dict.fromkeys(WITHOUT_TEXT)}], "timings": timing_rows(table)}


def _flop_rows(page: str, result: OcrResult, bench: Mapping[str, Any]) -> list[Row]:
    [stages] = [engine["stages"] for engine in bench["engines"] if engine["name"] == _engine(result)]
    return [
        {
            "page": page, "backend": result.backend, "stage": name, "flops": float(stage["flops"]),
            "kind": "analytic",
        }
        for name, stage in stages.items()
        if stage["flops"] is not None
    ]  # fmt: skip


def _comparisons(results: Sequence[OcrResult]) -> Iterator[Comparison]:
    """Both backends of each page, the published code's as B."""
    pages: dict[str, list[OcrResult]] = {}
    for result in results:
        pages.setdefault(result.request.name, []).append(result)
    for name in sorted(pages):
        a, b = sorted(pages[name], key=lambda result: result.backend == VENDOR)
        yield Comparison(a.request, a, b)
