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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import one_line
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.reading.artifacts import INFO, RESULT_IMAGE, RESULT_MMD
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.importers import imported
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles, as_yaml
from dsocr_core.runs.importers.nsys import KERNEL_SUMMARY, kernels_of, shares_note
from dsocr_core.runs.importers.profiles import kernel_rows, spread_rows, stage_of_range
from dsocr_core.runs.labels import distinct
from dsocr_core.runs.results import timing_rows
from dsocr_core.runs.schema import rows_to_table

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
_FLOP_KINDS = {"flops": "traced", "flops_isolated": "traced_isolated", "flops_analytic": "analytic"}

_STAGES = ("prefill", "decode", "vision", "sam", "clip", "projector")
_PICTURE_LIMIT = 64 * imported.MIB
_TYPES = {"text_raw": str, "error": str, "tokens": int}

Page = dict[str, Any]
"""One reading of one image as a row of `readings`; its name is `path`, as the run had it, until all are."""


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
        "env.json": (parse_json, ""), "config.yaml": (as_yaml, ""), "inputs.yaml": (as_yaml, ""),
        "stakeholder_summary.md": (read_summary, ""), "static_compute.json": (_flops, "stage_flops"),
        "cmd.txt": (lambda text: " ".join(text.split()), ""), KERNEL_SUMMARY: (kernels_of, ""),
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
    pages = join(found.get("predictions.jsonl", ()), shown)
    chosen = [_at(config, "model", "preprocess", name) for name in ("base_size", "image_size", "crop_mode")]
    sizes = {name: [each.base_size, each.image_size, each.crop_mode] for name, each in PRESETS.items()}
    preset = next((name for name, of in sizes.items() if of == chosen), None)
    readings = rows_to_table(
        "readings", "", [{**page, "preset": preset, "backend": VENDOR} for page in pages]
    )
    spreads = [spread_rows(VENDOR, stage, spread) for stage, spread in summary.get("stages", {}).items()]
    tables = {
        "readings": readings,
        "timings": [row for rows in (timing_rows(readings), *spreads) for row in rows],
        "stage_flops": found.get("static_compute.json", ()),
        "kernels": [] if kernels is None else kernel_rows(kernels, _captured(command or "")),
    }
    if not any(tables.values()):
        raise InvalidFile("no times, kernels, FLOPs or pages could be read")
    more: dict[str, Any] = {"created": summary["created"]} if summary.get("created") else {}
    notes = ["" if kernels is None else shares_note(kernels)]
    if not more and (more := imported.stamp_in(f"{command or ''} {run.place.name}")):
        notes.insert(0, "The time is the folder's, in a time zone that is not known.")
    texts = {name: value for name, value in environment.items() if isinstance(value, str) and value}
    named = _at(config, "model", "dtype"), _at(config, "device")
    dtype, device = (each if isinstance(each, str) else None for each in named)
    # A profiler's trace lies with it, or its settings asked for one.
    tools = ("nsys", "ncu")
    traced = [(run.place / of).is_dir() or _at(config, "pipeline", of, "enable") is True for of in tools]
    made = run.run(
        "llm-perf-opt", tables, " ".join(filter(None, notes)), command=command, backends=(VENDOR,),
        engine="llm-perf-opt", device=device, gpu=texts.pop("gpu", summary.get("device")), versions=texts,
        dtype=_DTYPES.get(dtype or "", dtype), preset=preset, profiled=any(traced), settings=config,
        attention="flash_attention_2" if config.get("use_flash_attn") is True else None,
        environment={"reported": summary["reported"]} if summary.get("reported") else {}, **more,
    )  # fmt: skip
    files = {f"{'imported' if role in forms else 'vendor'}/{role}": file for role, file in run.paths.items()}
    return [replace(made, files=files)]


def _at(data: Any, *names: str) -> Any:
    """A value in a configuration; one that has another form says nothing."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


# --- rows -------------------------------------------------------------------------------------------


def _flops(text: str) -> list[Row]:
    """Rows of `static_compute.json`: 0 means that fvcore could not see the stage."""
    rows: list[Row] = []
    for stage, of in parse_json(text)["stages"].items():
        # Their decode is counted for one new token, ours for a page.
        kinds = _FLOP_KINDS | ({"flops_analytic": "analytic_per_token"} if stage == "decode" else {})
        found = {kind: of[name] for name, kind in kinds.items() if of.get(name)}
        rows += [{"backend": VENDOR, "stage": stage, "flops": n, "kind": kind} for kind, n in found.items()]
    return rows


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
        "created": imported.moment_of(generated[1]) if generated else None,
        "device": facts.get("Device") or None,
    }


def _spread(name: str, cells: Sequence[str]) -> dict[str, float | None]:
    """The mean of a row, and the deviation where it has one. Raises InvalidFile."""
    if not all(re.fullmatch(r"\d{1,15}(\.\d{1,15})?", cell) for cell in (cells[0], *filter(None, cells[1:]))):
        raise InvalidFile(f"{name[:40]}: '{' '.join(cells)[:40]}' is not a number")
    return {of: float(cell) if cell else None for of, cell in zip(("mean", "std"), cells, strict=False)}


# --- pages ------------------------------------------------------------------------------------------


def _page(data: Mapping[str, Any], image: str, times: Mapping[str, Any], suffix: str = "") -> Page:
    if not isinstance(path := data.get(image), str) or not path:
        raise InvalidFile("names no image")
    for name, kind in _TYPES.items():
        if data.get(name) is not None and not isinstance(data[name], kind):
            raise InvalidFile(f"{name} is {data[name]!r:.40}, not of type {kind.__name__}")
    found = {stage: times.get(f"{stage}{suffix}") for stage in _STAGES}
    if any(value < 0 for value in found.values() if value is not None):
        raise InvalidFile("a time below 0")
    boxes = [
        {"number": number, "text": box.get("text"), "label": box.get("label"), "x1": box["x"], "y1": box["y"],
         "x2": box["x"] + box["w"], "y2": box["y"] + box["h"]}
        for number, box in enumerate(data.get("boxes") or ())
    ]  # fmt: skip
    # Their writer puts 0 where nothing was timed.
    taken = [{"stage": stage, "milliseconds": value} for stage, value in found.items() if value]
    return {
        "page": path, "path": path, "text_raw": data.get("text_raw") or None, "boxes": boxes or None,
        "new_tokens": data.get("tokens") or None, "error": data.get("error") or None, "times": taken or None,
    }  # fmt: skip


def read_predictions(text: str, left_out: list[str]) -> list[Page]:
    """Pages of a `predictions.jsonl`. Appends to `left_out` why a line was left out. Raises InvalidFile."""
    pages: list[Page] = []
    for count, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                pages.append(_page(data := parse_json(line), "image", data, "_ms"))
            except imported.FAULTS as error:
                left_out.append(f"line {count}: {one_line(error, 200)}")
    if not pages:
        raise InvalidFile(f"no page could be read: {left_out.pop(0)}" if left_out else "empty")
    return pages


def read_gallery(run: RunFiles, gallery: Path) -> list[Page]:
    """The pages in the folders of a gallery, their files taken as `viz/<md5>/`."""

    def shown(text: str) -> list[Page]:
        data = parse_json(text)
        return [_page(data, "source_image", data.get("timings_ms") or {})]

    pages: list[Page] = []
    for info in sorted(gallery.glob(f"{'[0-9a-f]' * 32}/{INFO}")):
        folder, place = info.parent, f"viz/{info.parent.name}"
        if folder.is_symlink() or f"{place}/{INFO}" in run.digests:
            continue
        if (found := run.take(f"{place}/{INFO}", info, shown, "readings")) is None:
            continue
        pages += found
        if (mmd := folder / RESULT_MMD).exists():
            run.take(f"{place}/{RESULT_MMD}", mmd, str)
        crops = [] if (folder / "images").is_symlink() else sorted(folder.glob("images/[0-9]*.jpg"))
        for file in (folder / RESULT_IMAGE, *crops) if (folder / RESULT_IMAGE).exists() else crops:
            try:
                if not (content := read_bytes(file, _PICTURE_LIMIT)).startswith(b"\xff\xd8\xff"):
                    raise InvalidFile("not a JPEG picture")
                run.keep(f"{place}/{file.relative_to(folder).as_posix()}", file, content)
            except InvalidFile as error:
                run.skip(file, str(error))
    return pages


def join(predictions: Sequence[Page], shown: Iterable[Page]) -> list[Page]:
    """Every reading once: a page of the gallery is the last prediction of its image with its text.

    A page's name is its path in the folder that all have in common; of a second reading `name (2)`: a run
    that cycles over its images reads some of them again, but keeps one folder for each.
    """
    pages = list(predictions)
    places = {(page["path"], page["text_raw"]): place for place, page in enumerate(pages)}
    for each in shown:
        if (place := places.get((each["path"], each["text_raw"]))) is None:
            pages.append(each)
        else:
            pages[place] = {name: pages[place][name] or value for name, value in each.items()}
    parts = [_parts(page["path"]) for page in pages]
    # It pairs the page with the same page of other runs, so it does not hold the folder of a machine.
    shared = imported.shared_folders(each[:-1] for each in parts)
    names = distinct({place: "/".join(each[shared:]) for place, each in enumerate(parts)})
    return [page | {"page": names[place]} for place, page in enumerate(pages)]


def _parts(image: str) -> tuple[str, ...]:
    kind = PureWindowsPath if re.match(r"[A-Za-z]:\\|\\\\", image) else PurePosixPath
    return tuple(part for part in kind(image).parts if part not in ("/", "..")) or (image,)
