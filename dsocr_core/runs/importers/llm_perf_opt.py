"""Run directories of llm-perf-opt, `<YYYYMMDD-HHMMSS>/`, with whatever of their files is there.

Traps of the format, and what is made of them:

- vision, their name for sam, clip and projector together, and these lie inside prefill and are marked so.
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
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles, as_json, as_yaml, moment_of
from dsocr_core.runs.importers.llm_perf_pages import SIZES, Page, join, read_gallery, read_predictions
from dsocr_core.runs.importers.nsys import KERNEL_SUMMARY, kernels_of, shares_note
from dsocr_core.runs.importers.profiles import kernel_rows, stage_of_range, timing_rows

_FOLDERS = (
    "", "torch_profiler", "torch_profiler/pred", "nsys", "static_analysis", "tmp/workload/torch_profiler",
    "tmp/workload/torch_profiler/pred",
)  # fmt: skip
"""Folders of a run's files and of its galleries; the first file of a name that can be read is taken."""
_MARKS = (
    "stakeholder_summary.md", "torch_profiler/pred/predictions.jsonl", f"nsys/{KERNEL_SUMMARY}",
    "static_analysis/static_compute.json",
)  # fmt: skip
"""Files that only a run has there."""
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_STAMP = re.compile(r"(?<!\d)(\d{8}-\d{6})(?!\d)")
_FLOP_KINDS = {"flops": "traced", "flops_isolated": "traced_isolated", "flops_analytic": "analytic"}


def is_run(directory: Path) -> bool:
    """Tell whether a folder holds a run."""
    return any((directory / name).is_file() for name in _MARKS)


def read_run(run: RunFiles) -> list[ImportedRun]:
    """The run in a folder for which `is_run` is true.

    A file that cannot be taken is named in `run` and the rest is read without it. Raises InvalidFile when
    nothing is left that says what was measured or read.
    """
    left_out: list[str] = []
    forms: dict[str, tuple[Callable[[str], Any], str]] = {
        "env.json": (as_json, ""), "config.yaml": (as_yaml, ""), "inputs.yaml": (_inputs, "readings"),
        "stakeholder_summary.md": (read_summary, ""), "static_compute.json": (_flops, "stage_flops"),
        "cmd.txt": (_nsight_command, ""), KERNEL_SUMMARY: (kernels_of, ""),
        "predictions.jsonl": (partial(read_predictions, left_out=left_out), "readings"),
    }  # fmt: skip
    found: dict[str, Any] = {}
    shown: list[Page] = []
    for folder in _FOLDERS:
        place = run.place / folder
        if place.resolve() != run.place.resolve() / folder:  # a link leads elsewhere
            continue
        for name, (parse, table) in forms.items():
            if name not in found and (file := place / name).is_file():
                taken = run.take(name, file, parse, table)
                found |= {} if taken is None else {name: taken}
        shown += read_gallery(run, place / "viz")
    for reason in left_out if "predictions.jsonl" in found else ():
        run.skip(run.paths["predictions.jsonl"], reason)
    environment, config, summary = (found.get(name, {}) for name in ("env.json", "config.yaml", _MARKS[0]))
    command, kernels = found.get("cmd.txt"), found.get(KERNEL_SUMMARY)
    pages = join(found.get("predictions.jsonl", ()), shown, found.get("inputs.yaml", ()))
    model, tools = _section(config, "model"), ("nsys", "ncu")
    chosen = [_section(model, "preprocess").get(name) for name in ("base_size", "image_size", "crop_mode")]
    sizes = {name: [each.base_size, each.image_size, each.crop_mode] for name, each in PRESETS.items()}
    preset = next((name for name, of in sizes.items() if of == chosen), None)
    times = [
        timing_rows(VENDOR, time["stage"], {"page": time["milliseconds"]}, page=page["page"])
        for page in pages
        for time in page.get("times") or ()
    ] + [timing_rows(VENDOR, stage, spread) for stage, spread in summary.get("stages", {}).items()]
    tables = {
        "readings": [{**page, "preset": preset, "backend": VENDOR} for page in pages],
        "timings": [row for rows in times for row in rows],
        "stage_flops": found.get("static_compute.json", ()),
        "kernels": [] if kernels is None else kernel_rows(kernels, _captured(command or "")),
    }
    if not any(tables.values()):
        raise InvalidFile("no times, kernels, FLOPs or pages could be read")
    more: dict[str, Any] = {"created": summary["created"]} if summary.get("created") else {}
    notes = ["" if kernels is None else shares_note(kernels)]
    for stamp in () if more else _STAMP.findall(f"{command or ''} {run.place.name}"):
        with suppress(ValueError):
            more["created"] = datetime.strptime(stamp, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
            notes.insert(0, "The time is the folder's, in a time zone that is not known.")
            break
    texts = {name: value for name, value in environment.items() if isinstance(value, str) and value}
    dtype, device = (
        each if isinstance(each, str) else None for each in (model.get("dtype"), config.get("device"))
    )
    # A profiler's trace lies with it, or its settings asked for one.
    profiled = any((run.place / tool).is_dir() for tool in tools) or any(
        _section(_section(config, "pipeline"), tool).get("enable") is True for tool in tools
    )
    made = run.run(
        "llm-perf-opt", tables, " ".join(filter(None, notes)), command=command, backends=(VENDOR,),
        engine="llm-perf-opt", device=device, gpu=texts.pop("gpu", summary.get("device")), versions=texts,
        dtype=_DTYPES.get(dtype or "", dtype), preset=preset, profiled=profiled, settings=config,
        attention="flash_attention_2" if config.get("use_flash_attn") is True else None,
        environment={"reported": summary["reported"]} if summary.get("reported") else {}, **more,
    )  # fmt: skip
    files = {f"{'imported' if role in forms else 'vendor'}/{role}": file for role, file in run.paths.items()}
    return [replace(made, files=files)]


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of the configuration; one that has another form says nothing."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}


# --- rows -------------------------------------------------------------------------------------------


def _inputs(text: str) -> list[Row]:
    """Path and sizes of each input, named by its path."""
    data = as_yaml(text)
    lines = data.get("inputs", data.get("images")) or ()
    return [
        {"page": line["path"], "path": line["path"], **{name: line.get(name) for name in SIZES}}
        for line in lines
    ]


def _flops(text: str) -> list[Row]:
    """Rows of `static_compute.json`: 0 means that fvcore could not see the stage."""
    rows: list[Row] = []
    for stage, of in as_json(text)["stages"].items():
        # Their decode is counted for one new token, ours for a page.
        kinds = _FLOP_KINDS | ({"flops_analytic": "analytic_per_token"} if stage == "decode" else {})
        found = {kind: of.get(name) for name, kind in kinds.items()}
        rows += [
            {"backend": VENDOR, "stage": stage, "flops": n, "kind": kind} for kind, n in found.items() if n
        ]
    return rows


def _nsight_command(text: str) -> str:
    """The command line in a `cmd.txt`. Raises InvalidFile for a text that is none of Nsight's."""
    command = " ".join(text.split())
    if not command.startswith(("nsys ", "ncu ")):
        raise InvalidFile("not a command line of nsys or ncu")
    return command


def _captured(command: str) -> str | None:
    """The one stage whose NVTX range alone was captured, None for all of them."""
    by_range = re.search(r"(?<!\S)(?:--capture-range|-c)[= ]nvtx(?!\S)", command)
    named = re.search(r"(?<!\S)(?:--nvtx-capture|-p)[= ](\S+)", command)
    return stage_of_range(named[1]) if by_range and named else None


# --- the summary ------------------------------------------------------------------------------------


def read_summary(text: str) -> dict[str, Any]:
    """Means and deviations of `stages` in ms, `reported` figures of no table, `created`, `device`.

    Raises InvalidFile for a cut or a contradiction.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        table = [line.strip() for line in lines if line.lstrip().startswith("|")]
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
        found = {cells[0]: cells[1:] for cells in rows[2:]}
        whole = all(line.endswith("|") for line in table) and len({*map(len, rows)}) <= 1
        if not whole or name.strip() in sections or len(found) < len(rows[2:]):
            raise InvalidFile(f"section '{name[:40]}': a row that is not whole, or two of one name")
        sections[name.strip()] = found
    if "Aggregates" not in sections or "MFU" not in [*sections][:-1]:
        raise InvalidFile("cut short: no section 'Aggregates', or none that follows 'MFU'")
    overall, stages, mfu = (
        {name: _spread(name, cells) for name, cells in sections.get(section, {}).items()}
        for section in ("Aggregates", "Per-Stage Timings (ms)", "MFU")
    )
    for stage in ("prefill", "decode"):
        known = overall.get(f"{stage.capitalize()} ms")
        if known is not None and stages.setdefault(stage, known) != known:
            raise InvalidFile(f"two times for {stage}: {stages[stage]['mean']} and {known['mean']} ms")
    if vision := re.search(r"Vision ≈ (\S+) ± (\S+) ms; do not add to prefill", text):
        stages.setdefault("vision", _spread("vision", vision.groups()))
    facts = {name: cells[0] for name, cells in sections.get("Environment", {}).items()}
    reported: dict[str, Any] = {"tokens": overall.get("Tokens"), "tokens_per_s": overall.get("Tokens/s")}
    reported["mfu"] = {scope.lower(): of["mean"] for scope, of in mfu.items() if of["mean"]}
    peak, generated = facts.get("Peak TFLOPs (est.)"), re.search(r"- Generated: (\S+)", text)
    reported["peak_tflops"] = _spread("peak TFLOPs", [peak])["mean"] if peak else None
    return {
        "stages": {stage: of for stage, of in stages.items() if of["mean"]},  # 0: it did not run
        "reported": {name: value for name, value in reported.items() if value},
        "created": moment_of(generated[1]) if generated else None,
        "device": facts.get("Device") or None,
    }


def _spread(name: str, cells: Sequence[str]) -> dict[str, float | None]:
    """The mean of a row, and the deviation where it has one. Raises InvalidFile."""
    if not all(re.fullmatch(r"\d{1,15}(\.\d{1,15})?", cell) for cell in (cells[0], *filter(None, cells[1:]))):
        raise InvalidFile(f"{name[:40]}: '{' '.join(cells)[:40]}' is not a number")
    return {of: float(cell) if cell else None for of, cell in zip(("mean", "std"), cells, strict=False)}
