"""Run directories of llm-perf-opt, `<YYYYMMDD-HHMMSS>/`, with whatever of their files is there.

Traps of the format, and what is made of them:

- vision, sam, clip and projector lie inside prefill and are marked so.
- A stage that is missing, or that its writer filled up with 0, was not measured: it has no row.
- A run under Nsight carries the profiler's overhead and is marked as profiled. Its summary's `Device` is
  empty, and its only "input" is the command line of the workload.
- `nvtx_capture: prefill` in `config.yaml` is a default; only the command line says what was captured.
- fvcore's FLOPs count a multiply-add once, and its `decode` is the head's share of a prefill. They are kept
  under kinds of their own, never beside ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.stages import INSIDE_PREFILL
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.imported import (
    FILE_TIME_NOTE,
    TABLE_LIMIT,
    Fields,
    ImportedRun,
    Row,
    RunFiles,
    as_json,
    as_yaml,
    file_time,
    moment_of,
)
from dsocr_core.runs.importers.llm_perf_pages import Page, join, read_gallery, read_predictions
from dsocr_core.runs.importers.nsys import KERNEL_SUMMARY, kernels_of, shares_note
from dsocr_core.runs.importers.stages import kernel_rows, stage_of_range
from dsocr_core.runs.record import RunRecord

Parsed = TypeVar("Parsed")
Spread = dict[str, float | None]
"""`mean` and `std` over the pages of a run."""

_TORCH, _WORKLOAD = "torch_profiler", "tmp/workload/torch_profiler"
PLACES: Mapping[str, tuple[str, ...]] = {
    "env.json": ("", _TORCH),
    "config.yaml": ("",),
    "inputs.yaml": ("", _TORCH),
    "metrics.json": (_TORCH, "", _WORKLOAD),
    "stakeholder_summary.md": ("", _TORCH, _WORKLOAD),
    "predictions.jsonl": (f"{_TORCH}/pred", _TORCH, "", f"{_WORKLOAD}/pred"),
    "static_compute.json": ("static_analysis", ""),
    KERNEL_SUMMARY: ("nsys",),
    "cmd.txt": ("nsys",),
}
"""Folders of each file of a run; the first that can be read is taken."""
_GALLERIES = (f"{_TORCH}/viz", "viz", f"{_WORKLOAD}/viz")
_COMMON = ("env.json", "config.yaml", "inputs.yaml")
"""Files that others than runs have, as `cmd.txt`; any of the rest in the first of its folders makes a run."""
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_STAMP = re.compile(r"(?<!\d)(\d{8}-\d{6})(?!\d)")
_INSIDE = frozenset(stage.value for stage in INSIDE_PREFILL) | {"vision"}
"""`vision` is their name for sam, clip and projector together."""
_FLOP_KINDS = {"flops": "traced", "flops_isolated": "traced_isolated", "flops_analytic": "analytic"}
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")
_VISION = re.compile(r"Vision ≈ (\S+) ± (\S+) ms; do not add to prefill")
_GENERATED = re.compile(r"- Generated: (\S+)")


def is_run(directory: Path) -> bool:
    """Tell whether a folder holds a run: a file that only a run has, or the three that every run has."""
    marks = PLACES.keys() - {*_COMMON, "cmd.txt"}
    return any((directory / PLACES[name][0] / name).is_file() for name in marks) or all(
        (directory / name).is_file() for name in _COMMON
    )


def read_run(run: RunFiles) -> list[ImportedRun]:
    """The run in a folder for which `is_run` is true.

    A file that cannot be taken is named in `run` and the rest is read without it. Raises InvalidFile when
    nothing is left that says what was measured or read.
    """
    environment = _take(run, "env.json", as_json) or Fields(None)
    config = _take(run, "config.yaml", as_yaml) or Fields(None)
    inputs = _take(run, "inputs.yaml", _inputs) or []
    metrics = _take(run, "metrics.json", _metrics)
    summary = _take(run, "stakeholder_summary.md", read_summary) or Summary({}, {})
    flops = _take(run, "static_compute.json", _flops) or []
    command = _take(run, "cmd.txt", _nsight_command)
    kernels = _take(run, KERNEL_SUMMARY, kernels_of)
    predictions, left_out = _take(run, "predictions.jsonl", read_predictions) or ([], [])
    for reason in left_out:
        run.skip(run.paths["predictions.jsonl"], reason)
    known = {item["path"]: item for item in inputs}
    galleries = [run.place / folder for folder in _GALLERIES if not _has_link(run.place, folder)]
    shown = [page for gallery in galleries for page in read_gallery(run, gallery)]
    pages = join(predictions, shown, [path for path, item in known.items() if not _is_command(item)])
    files: dict[str, bytes | Path] = {
        f"{'imported' if role in PLACES else 'vendor'}/{role}": file for role, file in run.paths.items()
    }
    figures = metrics or summary  # the metrics are not rounded
    model, pipeline = _section(config, "model"), _section(config, "pipeline")
    preset, dtype, device = _preset(_section(model, "preprocess")), model.get("dtype"), config.get("device")
    tables = {
        "readings": [_reading(page, known.get(page["path"], {}), preset) for page in pages],
        "stage_timings": _timings(pages, figures),
        "stage_flops": flops,
        "kernels": [] if kernels is None else kernel_rows(kernels, _captured(command or "")),
    }
    if not any(tables.values()):
        raise InvalidFile("no times, kernels, FLOPs or pages could be read")
    # A profiler's trace lies with it, or its settings asked for one.
    asked = any(_section(pipeline, tool).get("enable") is True for tool in ("nsys", "ncu"))
    traced = kernels is not None or any((run.place / tool).is_dir() for tool in ("nsys", "ncu"))
    created, note = _created(run.place, summary, command)
    gpu = environment.pop("gpu", None) or summary.device
    workload = next((item["path"] for item in inputs if _is_command(item)), "")
    notes = " ".join(filter(None, (note, "" if kernels is None else shares_note(kernels))))
    record = RunRecord(
        id=run.content_id("llm-perf-opt"), created=created, source="llm-perf-opt",
        command=command or " ".join(workload.split()) or None, backends=(VENDOR,), engine="llm-perf-opt",
        device=device if isinstance(device, str) else None, gpu=gpu if isinstance(gpu, str) else None,
        versions={name: value for name, value in environment.items() if isinstance(value, str) and value},
        dtype=_DTYPES.get(dtype, dtype) if isinstance(dtype, str) else None,
        attention="flash_attention_2" if config.get("use_flash_attn") is True else None, preset=preset,
        profiled=traced or asked or command is not None, settings=dict(config),
        environment={"reported": figures.reported} if figures.reported else {}, notes=notes or None,
    )  # fmt: skip
    return [ImportedRun(record, run.place, {name: rows for name, rows in tables.items() if rows}, files)]


def _take(run: RunFiles, role: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    """Read what the first readable file of a role says, None when there is none."""
    taken: Parsed | None = None
    for file in (run.place / folder / role for folder in PLACES[role]):
        if not file.is_file() or _has_link(run.place, file.parent.relative_to(run.place)):
            continue
        if taken is not None:
            run.skip(file, f"the run has another {role}")
        else:
            taken = run.take(role, file, parse, TABLE_LIMIT)
    return taken


def _has_link(directory: Path, place: str | Path) -> bool:
    """Tell whether a folder on the way from a directory to one below it is a link."""
    ways = [directory / place, *(directory / place).parents]
    return any(way.is_symlink() for way in ways[: ways.index(directory)])


# --- rows -------------------------------------------------------------------------------------------


def _reading(page: Page, item: Mapping[str, Any], preset: str | None) -> Row:
    times = [{"stage": of, "milliseconds": taken} for of, taken in page["times"].items()] or None
    return {**page, **item, "preset": preset, "backend": VENDOR, "times": times}


def _timings(pages: list[Page], figures: Summary) -> list[Row]:
    """Each page's times, and the means and deviations that the run reports."""
    found = [(page["page"], "page", *time) for page in pages for time in page["times"].items()]
    for of in ("mean", "std"):
        found += [(None, of, stage, spread[of]) for stage, spread in figures.stages.items()]
    return [
        {
            "page": page, "backend": VENDOR, "stage": stage, "milliseconds": taken,
            "inside_prefill": stage in _INSIDE, "aggregate": aggregate,
        }
        for page, aggregate, stage, taken in found
        if taken is not None
    ]  # fmt: skip


def _inputs(text: str) -> list[dict[str, Any]]:
    """Path, bytes, width and height of each input. Raises InvalidFile."""
    data = as_yaml(text)
    inputs: list[dict[str, Any]] = []
    for line in data.objects("inputs" if "inputs" in data else "images"):
        if (path := line.text("path")) is None:
            raise InvalidFile(f"{line.name} has no path")
        inputs.append({"path": path} | {name: line.whole(name) for name in ("bytes", "width", "height")})
    if data.get("count") is not None and data.whole("count") != len(inputs):
        raise InvalidFile(f"says {data['count']} inputs and lists {len(inputs)}")
    return inputs


def _is_command(item: Mapping[str, Any]) -> bool:
    """In runs under Nsight the only input is the command line of the workload."""
    known = item["bytes"] is not None or item["width"] is not None
    return not known and re.search(r"\s-m\s|\s\S+=\S", item["path"]) is not None


def _flops(text: str) -> list[Row]:
    """Rows of `static_compute.json`: 0 means that fvcore could not see the stage."""
    rows: list[Row] = []
    stages = as_json(text).object("stages")
    for stage in stages:
        for name, kind in _FLOP_KINDS.items():
            if flops := stages.object(stage).number(name):
                # Their decode is counted for one new token, ours for a page.
                kind = "analytic_per_token" if stage == "decode" and kind == "analytic" else kind
                rows.append({"backend": VENDOR, "stage": stage, "flops": flops, "kind": kind})
    return rows


# --- the summary of a run: metrics.json, or under Nsight stakeholder_summary.md alone ----------------


class Summary(NamedTuple):
    """Summary of a run as a whole. Times in ms; a stage that it does not name was not measured."""

    stages: Mapping[str, Spread]
    """By their stage names, `vision` among them where the note below the table gives it."""
    reported: Mapping[str, Any]
    """Figures of no table of the history: tokens, tokens_per_s, mfu by scope (0..1), peak_tflops."""
    generated: str | None = None
    """ISO 8601 time in UTC."""
    device: str | None = None


def _measured(spreads: Mapping[str, Spread]) -> dict[str, Spread]:
    """Without stages of 0 ms, which did not run or were not timed: their writer says it so."""
    return {stage: spread for stage, spread in spreads.items() if spread["mean"]}


def _metrics(text: str) -> Summary:
    """The figures of a `metrics.json`. Raises InvalidFile."""
    data = as_json(text)
    aggregates, mfu, dims = data.object("aggregates"), data.object("mfu_per_stage"), data.object("model_dims")

    def spreads(of: Fields, *names: str) -> dict[str, Spread]:
        found = {name.removesuffix("_ms"): of.object(name) for name in names if of.get(name) is not None}
        if without := [name for name, pair in found.items() if pair.number("mean") is None]:
            raise InvalidFile(f"{without[0]} has no mean")
        return {name: {of: pair.number(of) for of in ("mean", "std")} for name, pair in found.items()}

    of_stages = aggregates.object("stage_ms")
    stages = spreads(aggregates, "prefill_ms", "decode_ms") | spreads(of_stages, *of_stages)
    figures: dict[str, Any] = spreads(aggregates, "tokens", "tokens_per_s")
    scopes = {"model-level": data.number("mfu_model_level")} | {name: mfu.number(name) for name in mfu}
    figures["mfu"] = {scope: value for scope, value in scopes.items() if value}
    figures["peak_tflops"] = data.number("peak_tflops")
    figures["model_dims"] = {name: dims.whole(name) for name in dims}
    return Summary(_measured(stages), {name: each for name, each in figures.items() if each})


def read_summary(text: str) -> Summary:
    """The figures of a `stakeholder_summary.md`. Raises InvalidFile for a cut or a contradiction."""
    sections = _sections(text)
    if "Aggregates" not in sections or "MFU" not in [*sections][:-1]:
        raise InvalidFile("cut short: no section 'Aggregates', or none that follows 'MFU'")
    aggregates, stages = (
        {name: _spread(name, cells) for name, cells in sections.get(section, {}).items()}
        for section in ("Aggregates", "Per-Stage Timings (ms)")
    )
    for stage in ("prefill", "decode"):
        overall = aggregates.get(f"{stage.capitalize()} ms")
        if overall is not None and stages.setdefault(stage, overall) != overall:
            raise InvalidFile(f"two times for {stage}: {stages[stage]['mean']} and {overall['mean']} ms")
    if vision := _VISION.search(text):
        stages.setdefault("vision", _spread("vision", vision.groups()))
    environment = {name: cells[0] for name, cells in sections.get("Environment", {}).items()}
    peak = environment.get("Peak TFLOPs (est.)")
    mfu = {scope.lower(): _figure(cells[0], scope) for scope, cells in sections["MFU"].items()}
    figures = {
        "tokens": aggregates.get("Tokens"), "tokens_per_s": aggregates.get("Tokens/s"),
        "mfu": {scope: value for scope, value in mfu.items() if value},
        "peak_tflops": _figure(peak, "peak TFLOPs") if peak else None,
    }  # fmt: skip
    generated = _GENERATED.search(text)
    moment = moment_of(generated[1]) if generated else None
    if generated and moment is None:
        raise InvalidFile(f"'{generated[1][:40]}' is not a time")
    reported = {name: each for name, each in figures.items() if each}
    created = moment.isoformat() if moment else None
    return Summary(_measured(stages), reported, created, environment.get("Device") or None)


def _sections(text: str) -> dict[str, dict[str, list[str]]]:
    """Rows of the tables by the heading above and their first cell. Raises InvalidFile for one cut short."""
    sections: dict[str, dict[str, list[str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        table = [line.strip() for line in lines if line.lstrip().startswith("|")]
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
        for line, cells in zip(table, rows, strict=True):
            if not line.endswith("|") or not 2 <= len(cells) == len(rows[0]):
                raise InvalidFile(f"a table row that is not whole: '{line[:60]}'")
        found = {cells[0]: cells[1:] for cells in rows[2:]}
        if name.strip() in sections or len(found) < len(rows[2:]):
            raise InvalidFile(f"two sections '{name[:40]}', or two rows of one name in it")
        sections[name.strip()] = found
    return sections


def _spread(name: str, cells: Sequence[str]) -> Spread:
    if len(cells) != 2:
        raise InvalidFile(f"{name[:40]} has no mean and deviation")
    return {"mean": _figure(cells[0], name), "std": _figure(cells[1], name) if cells[1] else None}


def _figure(cell: str, name: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise InvalidFile(f"{name[:40]}: '{cell[:40]}' is not a number")
    return float(cell)


# --- the record -------------------------------------------------------------------------------------


def _nsight_command(text: str) -> str:
    """The command line in a `cmd.txt`. Raises InvalidFile for a text that is none of Nsight's."""
    command = " ".join(text.split())
    if not command.startswith(("nsys ", "ncu ")):
        raise InvalidFile("not a command line of nsys or ncu")
    return command


def _captured(command: str) -> str | None:
    """The one stage whose NVTX range alone was captured, None for all of them."""
    found = re.findall(r"(?<!\S)(--capture-range|--nvtx-capture|-c|-p)[= ](\S+)", command)
    options = {
        {"-c": "--capture-range", "-p": "--nvtx-capture"}.get(name, name): each for name, each in found
    }
    of_range = options.get("--capture-range") == "nvtx"
    return stage_of_range(options.get("--nvtx-capture", "")) if of_range else None


def _preset(sizes: Mapping[str, Any]) -> str | None:
    chosen = (sizes.get("base_size"), sizes.get("image_size"), sizes.get("crop_mode"))
    known = {(each.base_size, each.image_size, each.crop_mode): each.name for each in PRESETS.values()}
    return next((name for of, name in known.items() if of == chosen), None)


def _created(directory: Path, summary: Summary, command: str | None) -> tuple[str, str | None]:
    """Tell when the run was made, and what is to be said about it."""
    if summary.generated is not None:
        return summary.generated, None
    for stamp in _STAMP.findall(command or "") + _STAMP.findall(directory.name):
        with suppress(ValueError):
            moment = datetime.strptime(stamp, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            return moment.isoformat(), "The time is the folder's, in a time zone that is not known."
    return file_time(directory), FILE_TIME_NOTE


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of the configuration; one that has another form says nothing."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}
