"""Analytic sweeps of llm-perf-opt: what its estimates said page by page, and torch's counter where it ran.

Their FLOPs are printed in units of 10^12 as floating point numbers, whose last digits are those of whole
FLOPs; moved data is in terabits, sizes in GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.runs.importers.imported import ImportedRun, Row, Skipped, content_id
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    MIB,
    FileProbe,
    as_json,
    as_text,
    digest,
    file_time,
    mapping,
    number,
    whole,
)
from dsocr_core.runs.record import RunRecord

SWEEP_LIMIT = 32 * MIB
POINT_LIMIT = 20_000
FILES: Mapping[str, str] = {
    "vision_sweep.json": "vision",
    "e2e_vision_prefill_sweep.json": "prefill",
    "e2e_decode_sweep.json": "decode",
}
"""Estimates by file."""
OWN_FOLDERS = ("vision_crops", "e2e_vision_prefill", "e2e_decode")
_ENGINES = {
    "vision": {"eager": "vision", "flash": "vision_flash", "counted": "vision_vendor"},
    "prefill": {"eager": "prefill_eager", "flash": "prefill_flash", "counted": "prefill_vendor"},
    "decode": {"eager": "decode_eager", "flash": "decode_flash", "counted": "decode_vendor"},
}
"""The name of each engine's costs in a point."""


def is_sweep_folder(directory: Path) -> bool:
    """Tell whether a folder has a sweep's folders in it."""
    return bool(_files(directory))


def is_sweep_file(probe: FileProbe) -> bool:
    return probe.file.name in FILES


def unread_reason(file: Path) -> str:
    """Why a file of a sweep's folder is not taken."""
    if file.name.startswith(("responsive-tflops", "kvcache-by-input-shape")):
        return "worked out from the sweep's own points; see flops report --ttft, --tpot"
    if file.suffix in (".svg", ".png", ".md"):
        return "a picture or a table of the sweep's points"
    return "not a file of an analytic sweep"


def read_sweep(directory: Path) -> ImportedRun:
    """The files of a sweep's folder as one run. Raises InvalidFile where none of them can be read."""
    return _run(directory, _files(directory))


def read_file(file: Path) -> ImportedRun:
    """A sweep's file that lies by itself. Raises InvalidFile."""
    return _run(file, [file])


def _run(origin: Path, files: list[Path]) -> ImportedRun:
    rows: list[Row] = []
    digests: dict[str, str] = {}
    skipped: list[Skipped] = []
    models: list[str] = []
    for file in files:
        try:
            content = read_bytes(file, SWEEP_LIMIT)
            model, found = points(as_text(content), FILES[file.name])
        except InvalidFile as error:
            skipped.append(Skipped(file, str(error)))
            continue
        rows += found
        models += [model] if model else []
        digests[file.name] = digest(content)
    if not rows:
        raise InvalidFile(skipped[0].reason if skipped else "no file of a sweep")
    created = _stamp(origin.name)
    notes = f"Analytic sweep: {len(rows):,} estimates of {', '.join(sorted(digests))}."
    notes += f" Model {models[0][:100]}." if models else ""
    record = RunRecord(
        id=content_id("sweep", digests),
        created=created or file_time(files[0]),
        source="sweep",
        notes=notes if created else f"{notes} {FILE_TIME_NOTE}",
    )
    return ImportedRun(record, origin, {"sweep_points": rows}, {}, tuple(skipped), frozenset(files))


def points(text: str, part: str) -> tuple[str | None, list[Row]]:
    """The model that a file names, and a row for each point and engine that has FLOPs. Raises InvalidFile."""
    data = as_json(text)
    found = data.get("points")
    if not isinstance(found, list) or not found:
        raise InvalidFile("no list of points")
    if len(found) > POINT_LIMIT:
        raise InvalidFile(f"{len(found):,} points; at most {POINT_LIMIT:,} are read")
    stated = data.get("num_points")
    if isinstance(stated, int) and stated != len(found):
        raise InvalidFile(f"it says {stated} points and has {len(found)}")
    rows: list[Row] = []
    for place, point in enumerate(found):
        name = f"points[{place}]"
        rows += _point(mapping(point, name), part, name)
    if not rows:
        raise InvalidFile("points without FLOPs")
    model = data.get("model_id")
    return (model if isinstance(model, str) else None), rows


def _point(point: Mapping[str, Any], part: str, name: str) -> list[Row]:
    sizes = {key: whole(point.get(key), f"{name}.{key}") for key in _SIZES}
    for key in ("width_crop_num", "height_crop_num", "batch_size"):
        if not sizes[key]:
            raise InvalidFile(f"{name}.{key} is {sizes[key]}; expected 1 or more")
    of = {
        "part": part, "tile_columns": sizes["width_crop_num"], "tile_rows": sizes["height_crop_num"],
        "image_tokens": sizes["image_tokens_total"], "batch": sizes["batch_size"],
        "context": sizes["context_len"] or sizes["context_len_prefill"] or 0,
        "steps": sizes["decode_steps"] or 0,
    }  # fmt: skip
    costs = _costs(point, part, name)
    rows: list[Row] = []
    for engine, key in _ENGINES[part].items():
        cost = {
            figure: number(value, f"{name}.{figure}")
            for figure, value in mapping(costs.get(key), f"{name}.{key}").items()
            if figure in _FLOPS or figure in _BYTES
        }
        if any((value or 0) >= 1e6 for figure, value in cost.items() if figure in _FLOPS):
            raise InvalidFile(f"{name}.{key}: FLOPs out of all bounds")
        flops, matrix, other = (
            None if (value := cost.get(figure)) is None else round(value * 1e12) for figure in _FLOPS
        )
        counted = engine == "counted"
        if flops is None or (counted and not flops):
            continue
        # The two are printed apart: the sum's last digit decides.
        rest = other if matrix is None else flops - matrix
        row: dict[str, Any] = {"engine": engine, "flops": flops, "other_flops": rest}
        for figure, (column, unit) in _BYTES.items():
            value = cost.get(figure)
            known = value is not None and (column == "kv_bytes" or not counted)
            row[column] = value * unit if known and value is not None else None
        rows.append(of | row)
    return rows


_SIZES = (
    "width_crop_num", "height_crop_num", "image_tokens_total", "batch_size", "context_len",
    "context_len_prefill", "decode_steps",
)  # fmt: skip
_FLOPS = ("flops_tflops", "flops_tensor_tflops", "flops_cuda_tflops")
_BYTES = {
    "io_tb": ("bytes", 1e12 / 8), "weights_gb": ("weight_bytes", float(1 << 30)),
    "activations_gb": ("activation_bytes", float(1 << 30)), "kv_gb": ("kv_bytes", float(1 << 30)),
}  # fmt: skip
"""Columns of moved data, in terabits, and of sizes, in GiB; torch's counter knows the cache's alone."""
_TOTALS = {"eager": "analytic_eager_tflops", "flash": "analytic_flash_tflops", "counted": "vendor_tflops"}
"""Names of FLOPs in a point that has no costs of its stages."""


def _costs(point: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    """The costs of each engine; of a point that has only totals, those."""
    key = "stage_costs" if part == "vision" else f"{part}_stagecost"
    if key in point or part not in point:
        return mapping(point.get(key), f"{name}.costs")
    totals = mapping(point[part], f"{name}.{part}")
    return {_ENGINES[part][engine]: {"flops_tflops": totals.get(total)} for engine, total in _TOTALS.items()}


def _files(directory: Path) -> list[Path]:
    places = [directory / folder / name for folder in OWN_FOLDERS for name in FILES]
    return [
        place
        for place in places
        if place.is_file() and not place.is_symlink() and not place.parent.is_symlink()
    ]


def _stamp(name: str) -> str | None:
    """A folder's name is the time of its sweep, of no time zone: taken as UTC."""
    try:
        return datetime.strptime(name, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat(timespec="seconds")
    except ValueError:
        return None
