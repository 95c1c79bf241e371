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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import inside_prefill
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.gallery import (
    PAGE_LIMIT,
    Page,
    join,
    page_names,
    read_gallery,
    read_predictions,
)
from dsocr_core.runs.importers.imported import EmptyImport, ImportedRun, Row, Skipped, content_id
from dsocr_core.runs.importers.nsys import (
    KERNEL_SUMMARY,
    captured_stage,
    kernels_of,
    read_command,
    shares_note,
)
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
    has_link,
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
    run = _Run(
        environment=files.take("env.json", as_json) or {},
        config=files.take("config.yaml", as_yaml) or {},
        inputs=files.take("inputs.yaml", lambda text: _inputs(as_yaml(text))) or [],
        metrics=files.take("metrics.json", read_metrics),
        summary=files.take("stakeholder_summary.md", read_summary) or Summary(),
        flops=files.take("static_compute.json", _flops) or (),
        command=files.take("cmd.txt", read_command),
        pages=_pages(files),
    )
    kernels = files.take(KERNEL_SUMMARY, kernels_of, TABLE_LIMIT)
    run.traced = kernels is not None or (directory / "nsys").is_dir() or (directory / "ncu").is_dir()
    tables = {
        "readings": run.reading_rows(),
        "stage_timings": run.timing_rows(),
        "stage_flops": run.flops,
        "kernels": () if kernels is None else kernel_rows(kernels, run.captured_stage()),
    }
    if not any(tables.values()):
        raise EmptyImport("no times, kernels, FLOPs or pages could be read", files.skipped)
    created, time_note = run.created(directory)
    record = RunRecord(
        id=content_id("llm-perf-opt", files.digests),
        created=created,
        source="llm-perf-opt",
        command=run.command or run.input_command(),
        backends=(BACKEND,),
        engine="llm-perf-opt",
        **run.machine(),
        **run.model(),
        profiled=run.profiled(),
        settings=run.config,
        environment=run.reported(),
        notes=" ".join(note for note in (time_note, "" if kernels is None else shares_note(kernels)) if note)
        or None,
    )
    return ImportedRun(
        record,
        directory,
        {name: tuple(rows) for name, rows in tables.items() if rows},
        files.kept,
        tuple(files.skipped),
        frozenset(files.looked_at),
    )


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
            if not (file.is_file() or file.is_symlink()) or has_link(self.directory, place):
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
        if isinstance(content, Path):
            self.digests[role] = digest(read_bytes(content, PICTURE_LIMIT))
        else:
            self.digests[role] = digest(content)
        self.kept[place] = content

    def skip(self, file: Path, reason: str) -> None:
        self.looked_at.add(file)
        self.skipped.append(Skipped(file, reason))


@dataclass
class _Run:
    """Content of the files of one run."""

    environment: dict[str, Any]
    config: dict[str, Any]
    inputs: list[dict[str, Any]]
    """Path, bytes, width and height of each."""
    metrics: Summary | None
    summary: Summary
    flops: tuple[Row, ...]
    command: str | None
    pages: list[Page]
    traced: bool = False

    # --- rows -----------------------------------------------------------------------------------

    def named_pages(self) -> list[tuple[str, Page]]:
        return list(zip(page_names(page.image for page in self.pages), self.pages, strict=True))

    def reading_rows(self) -> list[Row]:
        """A row a reading, then one for each input of which nothing else is known."""
        known = {item["path"]: item for item in self.inputs}
        read = [page.image for page in self.pages]
        unread = [path for path, item in known.items() if path not in set(read) and not _is_command(item)]
        images = [*read, *unread]
        of = {"preset": self.model()["preset"], "backend": BACKEND}
        rows: list[Row] = []
        for name, image, page in zip(
            page_names(images), images, [*self.pages, *[None] * len(unread)], strict=True
        ):
            row = of | {"page": name, "path": image} | known.get(image, {})
            if page:
                row |= {"text_raw": page.text_raw, "new_tokens": page.tokens, "error": page.error}
                row["boxes"] = [{"number": index, **box} for index, box in enumerate(page.boxes)] or None
                row["times"] = [
                    {"stage": stage, "milliseconds": milliseconds, "calls": None}
                    for stage, milliseconds in page.times.items()
                ] or None
            rows.append(row)
        return rows

    def timing_rows(self) -> list[Row]:
        """Each page's times, and the means and deviations that the run reports."""
        rows = [
            _timing(page, stage, milliseconds, "page")
            for page, reading in self.named_pages()
            for stage, milliseconds in reading.times.items()
        ]
        # The metrics are not rounded, so they come first.
        for stage, spread in (self.metrics or self.summary).stages.items():
            rows.append(_timing(None, stage, spread.mean, "mean"))
            if spread.std is not None:
                rows.append(_timing(None, stage, spread.std, "std"))
        return rows

    # --- the record -----------------------------------------------------------------------------

    def machine(self) -> dict[str, Any]:
        """Device, GPU and versions."""
        device = self.config.get("device")
        gpu = self.environment.get("gpu") or self.summary.device
        return {
            "device": device if isinstance(device, str) else None,
            "gpu": gpu if isinstance(gpu, str) else None,
            "versions": {
                name: value
                for name, value in self.environment.items()
                if name != "gpu" and isinstance(value, str) and value
            },
        }

    def model(self) -> dict[str, Any]:
        """Number type, attention and preset, by the names this project gives them."""
        model = _section(self.config, "model")
        dtype = model.get("dtype")
        sizes = _section(model, "preprocess")
        chosen = (sizes.get("base_size"), sizes.get("image_size"), sizes.get("crop_mode"))
        return {
            "dtype": _DTYPES.get(dtype, dtype) if isinstance(dtype, str) else None,
            "attention": "flash_attention_2" if self.config.get("use_flash_attn") is True else None,
            "preset": next(
                (
                    preset.name
                    for preset in PRESETS.values()
                    if (preset.base_size, preset.image_size, preset.crop_mode) == chosen
                ),
                None,
            ),
        }

    def profiled(self) -> bool:
        """Tell whether it ran under Nsight: a trace lies beside it, or its settings asked for one."""
        pipeline = _section(self.config, "pipeline")
        asked = any(_section(pipeline, tool).get("enable") is True for tool in ("nsys", "ncu"))
        return self.traced or self.command is not None or asked

    def captured_stage(self) -> Stage | None:
        """The one stage whose kernels were captured, None for all of them."""
        if self.command is not None:
            return captured_stage(self.command)
        nsys = _section(_section(self.config, "pipeline"), "nsys")
        name = nsys.get("nvtx_capture")
        if nsys.get("capture_range") != "nvtx" or not isinstance(name, str):
            return None
        return stage_of_range(name)

    def input_command(self) -> str | None:
        """The command line that stands in place of an input in a run under Nsight."""
        return next((" ".join(item["path"].split()) for item in self.inputs if _is_command(item)), None)

    def reported(self) -> dict[str, Any]:
        """Figures of the run as a whole, as its files have them; no table of the history is about them."""
        figures = (self.metrics or self.summary).reported
        return {"reported": figures} if figures else {}

    def created(self, directory: Path) -> tuple[str, str | None]:
        """Tell when the run was made, and what is to be said about it."""
        if self.summary.generated is not None:
            return self.summary.generated, None
        stamps = _STAMP.findall(self.command or "") + _STAMP.findall(directory.name)
        for stamp in stamps:
            try:
                moment = datetime.strptime(stamp, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            except ValueError:
                continue
            return moment.isoformat(), "The time is the folder's, in a time zone that is not known."
        return file_time(directory), FILE_TIME_NOTE


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
    if left_out:
        file = next(
            files.directory / place
            for place in PLACES["predictions.jsonl"]
            if (files.directory / place) in files.looked_at
        )
        files.skipped.extend(Skipped(file, reason) for reason in left_out)
    return join(pages, _gallery(files))


def _gallery(files: _Files) -> list[Page]:
    shown: list[Page] = []
    for place in _GALLERIES:
        gallery = files.directory / place
        if not gallery.is_dir() or has_link(files.directory, f"{place}/info.json"):
            continue
        for folder in sorted(gallery.iterdir())[:PAGE_LIMIT]:
            info = folder / "info.json"
            if folder.is_symlink() or not info.is_file():
                continue
            try:
                page, pictures, content, refused = read_gallery(folder)
            except InvalidFile as error:
                files.skip(info, str(error))
                continue
            files.looked_at.add(info)
            key = f"viz/{page.folder}"
            if f"{key}/info.json" in files.digests:
                files.skip(info, "the run has another folder of this page")
                continue
            files.keep(f"{key}/info.json", f"vendor/{key}/info.json", content)
            for name, picture in pictures.items():
                files.looked_at.add(picture)
                files.keep(f"{key}/{name}", f"vendor/{key}/{name}", picture)
            for picture, reason in refused:
                files.skip(picture, reason)
            shown.append(page)
    return shown


def _inputs(data: dict[str, Any]) -> list[dict[str, Any]]:
    listed = data.get("inputs", data.get("images", []))
    if not isinstance(listed, list):
        raise InvalidFile("inputs is not a list")
    inputs = []
    for index, item in enumerate(listed):
        line = mapping(item, f"input {index}")
        path = text_or_none(line.get("path"), f"path of input {index}")
        if path is None:
            raise InvalidFile(f"input {index} has no path")
        sizes = {
            name: whole(line.get(name), f"{name} of input {index}") for name in ("bytes", "width", "height")
        }
        inputs.append({"path": path, **sizes})
    count = whole(data.get("count"), "count")
    if count is not None and count != len(inputs):
        raise InvalidFile(f"says {count} inputs and lists {len(inputs)}")
    return inputs


def _is_command(item: Mapping[str, Any]) -> bool:
    """In runs under Nsight the only input is the command line of the workload."""
    known = item["bytes"] is not None or item["width"] is not None
    return not known and re.search(r"\s-m\s|\s\S+=\S", item["path"]) is not None


def _flops(text: str) -> tuple[Row, ...]:
    """Rows of `static_compute.json`: 0 means that fvcore could not see the stage."""
    rows: list[Row] = []
    for stage, value in mapping(as_json(text).get("stages"), "stages").items():
        found = mapping(value, stage)
        for name, kind in _FLOP_KINDS.items():
            if flops := number(found.get(name), f"{name} of {stage}"):
                # Their decode is counted for one new token, ours for a page.
                per_token = stage == "decode" and kind == "analytic"
                rows.append(
                    {
                        "backend": BACKEND,
                        "stage": stage,
                        "flops": flops,
                        "kind": "analytic_per_token" if per_token else kind,
                    }
                )
    return tuple(rows)


def _timing(page: str | None, stage: str, milliseconds: float, aggregate: str) -> Row:
    return {
        "page": page,
        "backend": BACKEND,
        "stage": stage,
        "milliseconds": milliseconds,
        "inside_prefill": stage in _INSIDE,
        "aggregate": aggregate,
    }


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of the configuration; one that has another form says nothing."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}
