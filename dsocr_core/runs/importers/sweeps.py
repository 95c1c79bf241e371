"""Analytic sweeps of llm-perf-opt: its estimates point by point, and torch's counter where it ran.

Their FLOPs are printed in units of 10^12 as floating point numbers, whose last digits are those of whole
FLOPs; moved data is in terabits, sizes in GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.runs.importers.imported import MIB, ImportedRun, Row, RunFiles, stamp_in

SWEEP_LIMIT, POINT_LIMIT = 32 * MIB, 20_000
PARTS: Mapping[str, str] = {
    "vision_sweep.json": "vision",
    "e2e_vision_prefill_sweep.json": "prefill",
    "e2e_decode_sweep.json": "decode",
}
"""Estimated values, by file."""
_FOLDERS = ("vision_crops", "e2e_vision_prefill", "e2e_decode")
_ENGINES = {"eager": "{}_eager", "flash": "{}_flash", "counted": "{}_vendor"}
"""Each engine's costs in a point; `eager` of the vision part is `vision`."""
_SIZES = {
    "tile_columns": "width_crop_num", "tile_rows": "height_crop_num", "image_tokens": "image_tokens_total",
    "batch": "batch_size", "context": "context_len", "steps": "decode_steps",
}  # fmt: skip
_BYTES = {
    "bytes": ("io_tb", 1e12 / 8), "weight_bytes": ("weights_gb", 2.0**30),
    "activation_bytes": ("activations_gb", 2.0**30), "kv_bytes": ("kv_gb", 2.0**30),
}  # fmt: skip


def files_of(place: Path) -> list[Path]:
    """The files of a sweep: in the folders of a folder, links left out, or a file by itself."""
    if place.name in PARTS:
        return [place]
    places = [place / folder / name for folder in _FOLDERS for name in PARTS]
    return [each for each in places if each.is_file() and not (each.is_symlink() or each.parent.is_symlink())]


def read_sweep(run: RunFiles) -> list[ImportedRun]:
    """The files of a sweep as a run; none where no file has a point."""
    rows: list[Row] = []
    models: list[str] = []
    for file in (files := files_of(run.place)):
        parse = partial(_points, part=PARTS[file.name], models=models)
        rows += run.take(file.name, file, parse, "sweep_points", SWEEP_LIMIT) or []
    if not rows:
        return []
    notes = f"Analytic sweep: {len(rows):,} estimates of {', '.join(sorted(run.digests))}."
    notes += f" Model {models[0][:100]}." if models else ""
    return [run.run("sweep", {"sweep_points": rows}, notes, files[0], **stamp_in(run.place.name))]


def _points(text: str, part: str, models: list[str]) -> list[Row]:
    """A row for each point and engine that has FLOPs; the model named goes to a list. Raises InvalidFile."""
    data = parse_json(text)
    points, stated = data["points"], data.get("num_points")
    if not points or len(points) > POINT_LIMIT or stated not in (None, len(points)):
        raise InvalidFile(f"{len(points)} points, it says {stated}; at most {POINT_LIMIT:,} are read")
    if not (rows := [row for point in points for row in _point(point, part)]):
        raise InvalidFile("points without FLOPs")
    models += [data["model_id"]] if isinstance(data.get("model_id"), str) else []
    return rows


def _point(point: Mapping[str, Any], part: str) -> Iterator[Row]:
    sizes: dict[str, Any] = {column: point.get(key) for column, key in _SIZES.items()}
    columns, rows, batch = (sizes[name] or 0 for name in ("tile_columns", "tile_rows", "batch"))
    if min(columns, rows, batch) <= 0:
        raise InvalidFile(f"a point of {columns}x{rows} tiles and batch {batch}")
    sizes["context"] = sizes["context"] or point.get("context_len_prefill") or 0
    sizes["steps"] = sizes["steps"] or 0
    costs = point.get("stage_costs" if part == "vision" else f"{part}_stagecost") or {}
    for engine, name in _ENGINES.items():
        cost = costs.get("vision" if (part, engine) == ("vision", "eager") else name.format(part)) or {}
        flops, matrix, other = (_flops(cost.get(f"flops{kind}_tflops")) for kind in ("", "_tensor", "_cuda"))
        counted = engine == "counted"  # the counter knows of the sizes the cache's alone
        if flops is None or (counted and not flops):
            continue
        known = {
            column: cost.get(key) for column, (key, _) in _BYTES.items() if not counted or key == "kv_gb"
        }
        sums = {column: value * _BYTES[column][1] for column, value in known.items() if value is not None}
        # Both parts of the sum are printed: the sum's last digit decides.
        other = other if matrix is None else flops - matrix
        yield {**sizes, **sums, "part": part, "engine": engine, "flops": flops, "other_flops": other}


def _flops(tflops: float | None) -> int | None:
    if tflops is not None and not 0 <= tflops < 1e6:
        raise InvalidFile(f"{tflops:g} TFLOPs: out of all bounds")
    return None if tflops is None else round(tflops * 1e12)
