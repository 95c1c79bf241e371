"""Run directories of llm-perf-opt, `<YYYYMMDD-HHMMSS>/`, with whatever of their files is there.

Traps of the format, and what is made of them:

- vision, sam, clip and projector lie inside prefill and are marked so.
- A stage that is missing, or that its writer filled up with 0, was not measured: it has no row.
- A run under Nsight carries the profiler's overhead and is marked as profiled. Its summary's `Device` is
  empty, and its only "input" is the command line of the workload.
- `nvtx_capture: prefill` in `config.yaml` is a default; only `capture_range: nvtx` makes it true.
- fvcore's FLOPs count a multiply-add once, and its `decode` is the head's share of a prefill. They are kept
  under kinds of their own, never beside ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, TypeVar

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import inside_prefill
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.gallery import (
    PAGE_LIMIT,
    Page,
    join,
    page_files,
    page_names,
    read_gallery,
    read_predictions,
)
from dsocr_core.runs.importers.imported import EmptyImport, ImportedRun, Row, Skipped, content_id
from dsocr_core.runs.importers.nsys import KERNEL_SUMMARY, kernels_of, shares_note
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    PICTURE_LIMIT,
    TABLE_LIMIT,
    TEXT_LIMIT,
    as_json,
    as_text,
    as_yaml,
    digest,
    file_time,
    mapping,
    number,
    text_or_none,
    whole,
)
from dsocr_core.runs.importers.stages import kernel_rows, stage_of_range
from dsocr_core.runs.importers.summary import Summary, read_metrics, read_summary
from dsocr_core.runs.record import RunRecord

Parsed = TypeVar("Parsed")


BACKEND = VENDOR
"""llm-perf-opt runs the published modelling code, under a loop of its own."""

VISION = "vision"
"""Their name for sam, clip and projector together."""

_WORKLOAD = "tmp/workload/torch_profiler"
PLACES: Mapping[str, tuple[str, ...]] = {
    "env.json": ("env.json", "torch_profiler/env.json"),
    "config.yaml": ("config.yaml",),
    "inputs.yaml": ("inputs.yaml", "torch_profiler/inputs.yaml"),
    "metrics.json": ("torch_profiler/metrics.json", "metrics.json", f"{_WORKLOAD}/metrics.json"),
    "stakeholder_summary.md": (
        "stakeholder_summary.md",
        "torch_profiler/stakeholder_summary.md",
        f"{_WORKLOAD}/stakeholder_summary.md",
    ),
    "predictions.jsonl": (
        "torch_profiler/pred/predictions.jsonl",
        "torch_profiler/predictions.jsonl",
        "predictions.jsonl",
        f"{_WORKLOAD}/pred/predictions.jsonl",
    ),
    "static_compute.json": ("static_analysis/static_compute.json", "static_compute.json"),
    KERNEL_SUMMARY: (f"nsys/{KERNEL_SUMMARY}",),
    "cmd.txt": ("nsys/cmd.txt",),
}
"""Places of each file of a run, by what it is; the first that can be read is taken."""

_GALLERIES = ("torch_profiler/viz", "viz", f"{_WORKLOAD}/viz")
_MARKS = (
    "torch_profiler/metrics.json",
    "stakeholder_summary.md",
    f"nsys/{KERNEL_SUMMARY}",
    "torch_profiler/pred/predictions.jsonl",
    "static_analysis/static_compute.json",
)
OWN_FOLDERS = ("torch_profiler", "static_analysis", "nsys", "ncu", "tmp", "viz")
"""Folders of a run directory that are part of it; others are looked at for runs of their own."""

_WITHOUT_FIGURES = {
    "report.md": "repeats figures of the summary",
    "operators.md": "operators are not kept in the history",
    "static_compute.md": "repeats static_compute.json",
    "assumptions.md": "repeats config.yaml",
    "kernels.md": "repeats the kernel summary",
    "sections.txt": "lists what Nsight Compute could measure, not what it did",
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_STAMP = re.compile(r"(?<!\d)(\d{8}-\d{6})(?!\d)")
_INSIDE = frozenset(stage.value for stage in inside_prefill()) | {VISION}
_FLOP_KINDS = {"flops": "traced", "flops_isolated": "traced_isolated", "flops_analytic": "analytic"}


def is_run(directory: Path) -> bool:
    """Tell whether a folder holds a run: a file that only a run has, or the three that every run has."""
    return any((directory / mark).is_file() for mark in _MARKS) or all(
        (directory / name).is_file() for name in ("env.json", "config.yaml", "inputs.yaml")
    )


def read_run(directory: Path) -> ImportedRun:
    """The run in a folder for which `is_run` is true.

    A file that cannot be taken is named in `skipped` and the rest is read without it. Raises EmptyImport
    when nothing is left that says what was measured or read.
    """
    files = _Files(directory)
    environment = files.take("env.json", as_json) or {}
    config = files.take("config.yaml", as_yaml) or {}
    inputs = files.take("inputs.yaml", lambda text: _inputs(as_yaml(text))) or []
    metrics = files.take("metrics.json", read_metrics)
    summary = files.take("stakeholder_summary.md", read_summary) or Summary()
    flops = files.take("static_compute.json", _flops) or []
    command = files.take("cmd.txt", _nsight_command)
    pages = _pages(files)
    kernels = files.take(KERNEL_SUMMARY, kernels_of, TABLE_LIMIT)
    figures = metrics or summary  # the metrics are not rounded
    model, pipeline = _section(config, "model"), _section(config, "pipeline")
    preset, dtype, device = _preset(_section(model, "preprocess")), model.get("dtype"), config.get("device")
    tables = {
        "readings": _readings(pages, inputs, preset),
        "stage_timings": _timings(pages, figures),
        "stage_flops": flops,
        "kernels": [] if kernels is None else kernel_rows(kernels, _captured(command, pipeline)),
    }
    if not any(tables.values()):
        raise EmptyImport("no times, kernels, FLOPs or pages could be read", files.skipped)
    # A profiler's trace lies with it, or its settings asked for one.
    asked = any(_section(pipeline, tool).get("enable") is True for tool in ("nsys", "ncu"))
    traced = kernels is not None or any((directory / tool).is_dir() for tool in ("nsys", "ncu"))
    created, note = _created(directory, summary, command)
    gpu = environment.get("gpu") or summary.device
    versions = {name: value for name, value in environment.items() if name != "gpu"}
    record = RunRecord(
        id=content_id("llm-perf-opt", files.digests),
        created=created,
        source="llm-perf-opt",
        command=command or " ".join(next(filter(_is_command, inputs), {"path": ""})["path"].split()) or None,
        backends=(BACKEND,),
        engine="llm-perf-opt",
        device=device if isinstance(device, str) else None,
        gpu=gpu if isinstance(gpu, str) else None,
        versions={name: value for name, value in versions.items() if isinstance(value, str) and value},
        dtype=_DTYPES.get(dtype, dtype) if isinstance(dtype, str) else None,
        attention="flash_attention_2" if config.get("use_flash_attn") is True else None,
        preset=preset,
        profiled=traced or asked or command is not None,
        settings=config,
        environment={"reported": figures.reported} if figures.reported else {},
        notes=" ".join(filter(None, (note, "" if kernels is None else shares_note(kernels)))) or None,
    )
    found = {name: rows for name, rows in tables.items() if rows}
    looked_at = frozenset(files.looked_at)
    return ImportedRun(record, directory, found, files.kept, tuple(files.skipped), looked_at)


def unread_reason(file: Path) -> str:
    """Why a file in a run's folder that has no place in `PLACES` is not taken."""
    if file.suffix == ".log":
        return "a log"
    return _WITHOUT_FIGURES.get(file.name, "not a file that the history takes from a run of llm-perf-opt")


@dataclass
class _Files:
    """The files of one run: each is read once, and either hashed and kept or named with a reason."""

    directory: Path
    digests: dict[str, str] = field(default_factory=dict)
    kept: dict[str, bytes | Path] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    looked_at: set[Path] = field(default_factory=set)

    def take(self, role: str, parse: Callable[[str], Parsed], limit: int = TEXT_LIMIT) -> Parsed | None:
        """Read what the first readable file of a role says, None when there is none."""
        taken: Parsed | None = None
        for place in PLACES[role]:
            file = self.directory / place
            if not (file.is_file() or file.is_symlink()) or _has_link(self.directory, place):
                continue
            self.looked_at.add(file)
            if taken is not None:
                self.skip(file, f"the run has another {role}")
                continue
            try:
                content = read_bytes(file, limit)
                taken = parse(as_text(content))
                self.keep(role, f"imported/{role}", content)
            except InvalidFile as error:
                self.skip(file, str(error))
        return taken

    def keep(self, role: str, place: str, content: bytes | Path) -> None:
        """Count a file to the run's content and keep it at that place of the run."""
        whole = read_bytes(content, PICTURE_LIMIT) if isinstance(content, Path) else content
        self.digests[role], self.kept[place] = digest(whole), content

    def skip(self, file: Path, reason: str) -> None:
        self.looked_at.add(file)
        self.skipped.append(Skipped(file, reason))


def _has_link(directory: Path, place: str) -> bool:
    """Tell whether a folder on the way from a directory to a place below it is a link."""
    return any((directory / folder).is_symlink() for folder in list(PurePath(place).parents)[:-1])


# --- rows -------------------------------------------------------------------------------------------


def _pages(files: _Files) -> list[Page]:
    """The readings of a run from its predictions and its gallery."""
    left_out: list[str] = []

    def predictions(text: str) -> list[Page]:
        pages, reasons = read_predictions(text)
        if not pages:
            raise InvalidFile(f"no page could be read: {reasons[0]}" if reasons else "empty")
        left_out.extend(reasons)
        return pages

    pages = files.take("predictions.jsonl", predictions, TABLE_LIMIT) or []
    places = (files.directory / place for place in PLACES["predictions.jsonl"])
    file = next((file for file in places if file in files.looked_at), files.directory)
    files.skipped.extend(Skipped(file, reason) for reason in left_out)
    return join(pages, _gallery(files))


def _gallery(files: _Files) -> list[Page]:
    shown: list[Page] = []
    galleries = [
        files.directory / place
        for place in _GALLERIES
        if (files.directory / place).is_dir() and not _has_link(files.directory, f"{place}/info.json")
    ]
    for folder in [each for gallery in galleries for each in sorted(gallery.iterdir())][:PAGE_LIMIT]:
        info = folder / "info.json"
        if folder.is_symlink() or not info.is_file():
            continue
        try:
            page, content = read_gallery(folder)
            if f"viz/{page.folder}/info.json" in files.digests:
                raise InvalidFile("the run has another folder of this page")
        except InvalidFile as error:
            files.skip(info, str(error))
            continue
        pictures, refused = page_files(folder)
        for name, file in ({"info.json": info} | pictures).items():
            files.looked_at.add(file)
            place = f"viz/{page.folder}/{name}"
            files.keep(place, f"vendor/{place}", content if file == info else file)
        for picture, reason in refused:
            files.skip(picture, reason)
        shown.append(page)
    return shown


def _readings(pages: list[Page], inputs: list[dict[str, Any]], preset: str | None) -> list[Row]:
    """A row a reading, then one for each input of which nothing else is known."""
    known = {item["path"]: item for item in inputs}
    read = {page.image for page in pages}
    unread = [path for path, item in known.items() if path not in read and not _is_command(item)]
    images = [*(page.image for page in pages), *unread]
    rows: list[Row] = []
    for place, (name, image) in enumerate(zip(page_names(images), images, strict=True)):
        row = {"preset": preset, "backend": BACKEND, "page": name, "path": image} | known.get(image, {})
        if place < len(pages):
            page = pages[place]
            row |= {"text_raw": page.text_raw, "new_tokens": page.tokens, "error": page.error}
            row["boxes"] = [{"number": index, **box} for index, box in enumerate(page.boxes)] or None
            times = page.times.items()
            row["times"] = [{"stage": stage, "milliseconds": taken} for stage, taken in times] or None
        rows.append(row)
    return rows


def _timings(pages: list[Page], figures: Summary) -> list[Row]:
    """Each page's times, and the means and deviations that the run reports."""
    names = page_names(page.image for page in pages)
    found: list[tuple[str | None, str, str, float | None]] = [
        (name, stage, "page", taken)
        for name, page in zip(names, pages, strict=True)
        for stage, taken in page.times.items()
    ]
    for stage, spread in figures.stages.items():
        found += [(None, stage, of, taken) for of, taken in spread.items()]
    return [
        {
            "page": page, "backend": BACKEND, "stage": stage, "milliseconds": taken,
            "inside_prefill": stage in _INSIDE, "aggregate": aggregate,
        }
        for page, stage, aggregate, taken in found
        if taken is not None
    ]  # fmt: skip


def _inputs(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Path, bytes, width and height of each input. Raises InvalidFile."""
    listed = data.get("inputs", data.get("images", []))
    if not isinstance(listed, list):
        raise InvalidFile("inputs is not a list")
    inputs: list[dict[str, Any]] = []
    for index, item in enumerate(listed):
        line = mapping(item, f"input {index}")
        if (path := text_or_none(line.get("path"), f"path of input {index}")) is None:
            raise InvalidFile(f"input {index} has no path")
        sizes = ("bytes", "width", "height")
        inputs.append(
            {"path": path} | {name: whole(line.get(name), f"{name} of input {index}") for name in sizes}
        )
    if data.get("count") is not None and whole(data["count"], "count") != len(inputs):
        raise InvalidFile(f"says {data['count']} inputs and lists {len(inputs)}")
    return inputs


def _is_command(item: Mapping[str, Any]) -> bool:
    """In runs under Nsight the only input is the command line of the workload."""
    known = item["bytes"] is not None or item["width"] is not None
    return not known and re.search(r"\s-m\s|\s\S+=\S", item["path"]) is not None


def _flops(text: str) -> list[Row]:
    """Rows of `static_compute.json`: 0 means that fvcore could not see the stage."""
    rows: list[Row] = []
    for stage, value in mapping(as_json(text).get("stages"), "stages").items():
        for name, kind in _FLOP_KINDS.items():
            if flops := number(mapping(value, stage).get(name), f"{name} of {stage}"):
                # Their decode is counted for one new token, ours for a page.
                kind = "analytic_per_token" if stage == "decode" and kind == "analytic" else kind
                rows.append({"backend": BACKEND, "stage": stage, "flops": flops, "kind": kind})
    return rows


# --- the record -------------------------------------------------------------------------------------


def _nsight_command(text: str) -> str:
    """The command line in a `cmd.txt`. Raises InvalidFile for a text that is none of Nsight's."""
    command = " ".join(text.split())
    if not command.startswith(("nsys ", "ncu ")):
        raise InvalidFile("not a command line of nsys or ncu")
    return command


def _captured(command: str | None, pipeline: Mapping[str, Any]) -> str | None:
    """The one stage whose NVTX range alone was captured, None for all of them."""
    nsys = _section(pipeline, "nsys")
    range_, name = nsys.get("capture_range"), nsys.get("nvtx_capture")
    if command is not None:
        options = dict(re.findall(r"(?<!\S)(--capture-range|--nvtx-capture|-c|-p)[= ](\S+)", command)[::-1])
        range_ = options.get("--capture-range", options.get("-c"))
        name = options.get("--nvtx-capture", options.get("-p"))
    stage = stage_of_range(name) if range_ == "nvtx" and isinstance(name, str) else None
    return stage.value if stage else None


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
