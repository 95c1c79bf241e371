"""Analytic sweeps of llm-perf-opt: its estimates point by point, and torch's counter where it ran.

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

SWEEP_LIMIT, POINT_LIMIT = 32 * MIB, 20_000
FILES: Mapping[str, str] = {
    "vision_sweep.json": "vision",
    "e2e_vision_prefill_sweep.json": "prefill",
    "e2e_decode_sweep.json": "decode",
}
"""Estimated values, by file."""
OWN_FOLDERS = ("vision_crops", "e2e_vision_prefill", "e2e_decode")
_ENGINES = {
    "vision": {"eager": "vision", "flash": "vision_flash", "counted": "vision_vendor"},
    "prefill": {"eager": "prefill_eager", "flash": "prefill_flash", "counted": "prefill_vendor"},
    "decode": {"eager": "decode_eager", "flash": "decode_flash", "counted": "decode_vendor"},
}
"""The name of each engine's costs in a point."""
_TOTALS = {"eager": "analytic_eager_tflops", "flash": "analytic_flash_tflops", "counted": "vendor_tflops"}
"""Names of FLOPs in a point that has no costs of its stages."""
_SIZES = {
    "tile_columns": "width_crop_num", "tile_rows": "height_crop_num", "image_tokens": "image_tokens_total",
    "batch": "batch_size", "context": "context_len", "steps": "decode_steps",
}  # fmt: skip
_FLOPS = ("flops_tflops", "flops_tensor_tflops", "flops_cuda_tflops")
_BYTES = {
    "io_tb": ("bytes", 1e12 / 8), "weights_gb": ("weight_bytes", 2.0**30),
    "activations_gb": ("activation_bytes", 2.0**30), "kv_gb": ("kv_bytes", 2.0**30),
}  # fmt: skip


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


def read_sweep(place: Path) -> ImportedRun:
    """The files of a sweep's folder, or one by itself, as a run. Raises InvalidFile for none."""
    files = _files(place) if place.is_dir() else [place]
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
    notes = f"Analytic sweep: {len(rows):,} estimates of {', '.join(sorted(digests))}."
    notes += f" Model {models[0][:100]}." if models else ""
    try:  # a folder's name is the time of its sweep, of no time zone: taken as UTC
        created = datetime.strptime(place.name, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        created, notes = file_time(files[0]), f"{notes} {FILE_TIME_NOTE}"
    record = RunRecord(id=content_id("sweep", digests), created=created, source="sweep", notes=notes)
    return ImportedRun(record, place, {"sweep_points": rows}, {}, tuple(skipped), frozenset(files))


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
    rows = [
        row
        for place, point in enumerate(found)
        for row in _point(mapping(point, f"points[{place}]"), part, f"points[{place}]")
    ]
    if not rows:
        raise InvalidFile("points without FLOPs")
    model = data.get("model_id")
    return (model if isinstance(model, str) else None), rows


def _point(point: Mapping[str, Any], part: str, name: str) -> list[Row]:
    of = {column: whole(point.get(key), f"{name}.{key}") for column, key in _SIZES.items()}
    for column in ("tile_columns", "tile_rows", "batch"):
        if not of[column]:
            raise InvalidFile(f"{name}.{_SIZES[column]} is {of[column]}; expected 1 or more")
    prefill = whole(point.get("context_len_prefill"), f"{name}.context_len_prefill")
    of |= {"context": of["context"] or prefill or 0, "steps": of["steps"] or 0}
    costs = _costs(point, part, name)
    rows: list[Row] = []
    for engine, key in _ENGINES[part].items():
        given = mapping(costs.get(key), f"{name}.{key}")
        cost = {figure: number(given.get(figure), f"{name}.{figure}") for figure in (*_FLOPS, *_BYTES)}
        if any((cost[figure] or 0) >= 1e6 for figure in _FLOPS):
            raise InvalidFile(f"{name}.{key}: FLOPs out of all bounds")
        flops, matrix, other = (
            None if (value := cost[figure]) is None else round(value * 1e12) for figure in _FLOPS
        )
        counted = engine == "counted"
        if flops is None or (counted and not flops):
            continue
        # Both parts of the sum are printed: the sum's last digit decides.
        row = {"part": part, "engine": engine, "flops": flops}
        row["other_flops"] = other if matrix is None else flops - matrix
        for figure, (column, unit) in _BYTES.items():
            # Torch's counter knows the cache's size alone.
            known = cost[figure] if column == "kv_bytes" or not counted else None
            row[column] = None if known is None else known * unit
        rows.append(of | row)
    return rows


def _costs(point: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    """The costs of each engine; of a point that has only totals, those."""
    key = "stage_costs" if part == "vision" else f"{part}_stagecost"
    if key in point or part not in point:
        return mapping(point.get(key), f"{name}.costs")
    totals = mapping(point[part], f"{name}.{part}")
    return {_ENGINES[part][engine]: {"flops_tflops": totals.get(total)} for engine, total in _TOTALS.items()}


def _files(directory: Path) -> list[Path]:
    places = [directory / folder / name for folder in OWN_FOLDERS for name in FILES]
    linked = [place for place in places if place.is_symlink() or place.parent.is_symlink()]
    return [place for place in places if place.is_file() and place not in linked]
