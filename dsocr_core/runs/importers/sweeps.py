"""Analytic sweeps of llm-perf-opt: its estimates point by point, and torch's counter where it ran.

Their FLOPs are printed in units of 10^12 as floating point numbers, whose last digits are those of whole
FLOPs; moved data is in terabits, sizes in GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.imported import (
    FILE_TIME_NOTE,
    MIB,
    Fields,
    ImportedRun,
    Row,
    RunFiles,
    as_json,
    file_time,
)
from dsocr_core.runs.record import RunRecord

SWEEP_LIMIT, POINT_LIMIT = 32 * MIB, 20_000
FILES: Mapping[str, str] = {
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
    "io_tb": ("bytes", 1e12 / 8), "weights_gb": ("weight_bytes", 2.0**30),
    "activations_gb": ("activation_bytes", 2.0**30), "kv_gb": ("kv_bytes", 2.0**30),
}  # fmt: skip


def files_in(directory: Path) -> list[Path]:
    """The files of a sweep in its folders, links left out."""
    places = [directory / folder / name for folder in _FOLDERS for name in FILES]
    return [each for each in places if each.is_file() and not (each.is_symlink() or each.parent.is_symlink())]


def read_sweep(run: RunFiles) -> list[ImportedRun]:
    """The files of a sweep's folder, or one by itself, as a run. Raises InvalidFile for none."""
    rows: list[Row] = []
    models: list[str] = []
    files = files_in(run.place) or [run.place]
    for file in files:
        model, found = run.take(file.name, file, partial(_points, part=FILES[file.name]), SWEEP_LIMIT) or (
            "",
            [],
        )
        rows += found
        models += [model] if isinstance(model, str) and model else []
    if not rows:
        raise InvalidFile(run.skipped[0].reason)
    notes = f"Analytic sweep: {len(rows):,} estimates of {', '.join(sorted(run.digests))}."
    notes += f" Model {models[0][:100]}." if models else ""
    try:  # a folder's name is the time of its sweep, of no time zone: taken as UTC
        created = datetime.strptime(run.place.name, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        created, notes = file_time(files[0]), f"{notes} {FILE_TIME_NOTE}"
    record = RunRecord(id=run.content_id("sweep"), created=created, source="sweep", notes=notes)
    return [ImportedRun(record, run.place, {"sweep_points": rows})]


def _points(text: str, part: str) -> tuple[object, list[Row]]:
    """The model that a file names, and a row for each point and engine that has FLOPs. Raises InvalidFile."""
    data = as_json(text)
    found, stated = data.objects("points"), data.get("num_points")
    if not found or len(found) > POINT_LIMIT:
        raise InvalidFile(f"no list of points, or more than {POINT_LIMIT:,}")
    if isinstance(stated, int) and stated != len(found):
        raise InvalidFile(f"it says {stated} points and has {len(found)}")
    rows = [row for point in found for row in _point(point, part)]
    if not rows:
        raise InvalidFile("points without FLOPs")
    return data.get("model_id"), rows


def _point(point: Fields, part: str) -> list[Row]:
    sizes = {column: point.whole(key) for column, key in _SIZES.items()}
    for column in ("tile_columns", "tile_rows", "batch"):
        if not sizes[column]:
            raise InvalidFile(f"{point.name}.{_SIZES[column]} is {sizes[column]}; expected 1 or more")
    sizes["context"] = sizes["context"] or point.whole("context_len_prefill") or 0
    sizes["steps"] = sizes["steps"] or 0
    costs = point.object("stage_costs" if part == "vision" else f"{part}_stagecost")
    rows: list[Row] = []
    for engine, name in _ENGINES.items():
        cost = costs.object("vision" if (part, engine) == ("vision", "eager") else name.format(part))
        flops, matrix, other = (_flops(cost, f"flops{kind}_tflops") for kind in ("", "_tensor", "_cuda"))
        counted = engine == "counted"
        if flops is None or (counted and not flops):
            continue
        # Both parts of the sum are printed: the sum's last digit decides.
        row = {"part": part, "engine": engine, "flops": flops}
        row["other_flops"] = other if matrix is None else flops - matrix
        for figure, (column, unit) in _BYTES.items():
            # Torch's counter knows the cache's size alone.
            known = cost.number(figure) if column == "kv_bytes" or not counted else None
            row[column] = None if known is None else known * unit
        rows.append(sizes | row)
    return rows


def _flops(cost: Fields, key: str) -> int | None:
    value = cost.number(key)
    if value is not None and value >= 1e6:
        raise InvalidFile(f"{cost.name}: FLOPs out of all bounds")
    return None if value is None else round(value * 1e12)
