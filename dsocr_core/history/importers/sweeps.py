"""Analytic sweeps of llm-perf-opt: what its estimates said page by page, and torch's counter where it ran.

Their FLOPs are printed in units of 10^12 as floating point numbers, whose last digits are those of whole
FLOPs; moved data is in terabits, sizes in GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dsocr_core.history.importers.imported import ImportedRun, Row, Skipped, content_id
from dsocr_core.history.importers.reading import (
    FILE_TIME_NOTE,
    MIB,
    Head,
    as_json,
    as_text,
    digest,
    file_time,
    mapping,
    number,
    whole,
)
from dsocr_core.history.record import RunRecord
from dsocr_core.outside.untrusted import Refused, read_bytes

SWEEP_LIMIT = 32 * MIB
POINT_LIMIT = 20_000
FILES: Mapping[str, str] = {
    "vision_sweep.json": "vision",
    "e2e_vision_prefill_sweep.json": "prefill",
    "e2e_decode_sweep.json": "decode",
}
"""What each file estimates."""
OWN_FOLDERS = ("vision_crops", "e2e_vision_prefill", "e2e_decode")
_ENGINES = {
    "vision": {"eager": "vision", "flash": "vision_flash", "counted": "vision_vendor"},
    "prefill": {"eager": "prefill_eager", "flash": "prefill_flash", "counted": "prefill_vendor"},
    "decode": {"eager": "decode_eager", "flash": "decode_flash", "counted": "decode_vendor"},
}
"""The name of each engine's costs in a point."""
_BYTES_A_TERABIT, _BYTES_A_GIB = 1e12 / 8, float(1 << 30)


def is_sweep_folder(directory: Path) -> bool:
    """Whether a folder has a sweep's folders in it."""
    return bool(_files(directory))


def is_sweep_file(head: Head) -> bool:
    return head.file.name in FILES


def unread_reason(file: Path) -> str:
    """Why a file of a sweep's folder is not taken."""
    if file.name.startswith(("responsive-tflops", "kvcache-by-input-shape")):
        return "worked out from the sweep's own points; FLOPs has it as Requirements"
    if file.suffix in (".svg", ".png", ".md"):
        return "a picture or a table of the sweep's points"
    return "not a file of an analytic sweep"


def read_sweep(directory: Path) -> ImportedRun:
    """The files of a sweep's folder as one run. Raises Refused where none of them can be read."""
    return _run(directory, _files(directory))


def read_file(file: Path) -> ImportedRun:
    """A sweep's file that lies by itself. Raises Refused."""
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
        except Refused as error:
            skipped.append(Skipped(file, str(error)))
            continue
        rows += found
        models += [model] if model else []
        digests[file.name] = digest(content)
    if not rows:
        raise Refused(skipped[0].reason if skipped else "no file of a sweep")
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
    """The model that a file names, and a row for each point and engine that has FLOPs. Raises Refused."""
    data = as_json(text)
    found = data.get("points")
    if not isinstance(found, list) or not found:
        raise Refused("no list of points")
    if len(found) > POINT_LIMIT:
        raise Refused(f"{len(found):,} points; at most {POINT_LIMIT:,} are read")
    stated = data.get("num_points")
    if isinstance(stated, int) and stated != len(found):
        raise Refused(f"it says {stated} points and has {len(found)}")
    rows: list[Row] = []
    for place, point in enumerate(found):
        name = f"points[{place}]"
        rows += _point(mapping(point, name), part, name)
    if not rows:
        raise Refused("points without FLOPs")
    model = data.get("model_id")
    return (model if isinstance(model, str) else None), rows


def _point(point: Mapping[str, Any], part: str, name: str) -> list[Row]:
    of = {
        "part": part,
        "tile_columns": _count(point, "width_crop_num", name),
        "tile_rows": _count(point, "height_crop_num", name),
        "image_tokens": whole(point.get("image_tokens_total"), f"{name}.image_tokens_total"),
        "batch": _count(point, "batch_size", name),
        "context": whole(
            point.get("context_len", point.get("context_len_prefill")), f"{name}.context_len"
        ) or 0,
        "steps": whole(point.get("decode_steps"), f"{name}.decode_steps") or 0,
    }  # fmt: skip
    costs = _costs(point, part, name)
    rows: list[Row] = []
    for engine, key in _ENGINES[part].items():
        cost = mapping(costs.get(key), f"{name}.{key}")
        flops = _flops(cost, "flops_tflops", name)
        if flops is None or (engine == "counted" and not flops):
            continue
        other = _flops(cost, "flops_cuda_tflops", name)
        matrix = _flops(cost, "flops_tensor_tflops", name)
        counted = engine == "counted"
        rows.append(
            of
            | {
                "engine": engine,
                "flops": flops,
                # The two are printed apart: the sum's last digit decides.
                "other_flops": flops - matrix if matrix is not None else other,
                "bytes": None if counted else _times(cost, "io_tb", _BYTES_A_TERABIT, name),
                "weight_bytes": None if counted else _times(cost, "weights_gb", _BYTES_A_GIB, name),
                "activation_bytes": None if counted else _times(cost, "activations_gb", _BYTES_A_GIB, name),
                "kv_bytes": _times(cost, "kv_gb", _BYTES_A_GIB, name),
            }
        )
    return rows


_TOTALS = {"eager": "analytic_eager_tflops", "flash": "analytic_flash_tflops", "counted": "vendor_tflops"}
"""Names of FLOPs in a point that has no costs of its stages."""


def _costs(point: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    """The costs of each engine; of a point that has only totals, those."""
    key = "stage_costs" if part == "vision" else f"{part}_stagecost"
    if key in point or part not in point:
        return mapping(point.get(key), f"{name}.costs")
    totals = mapping(point[part], f"{name}.{part}")
    return {_ENGINES[part][engine]: {"flops_tflops": totals.get(total)} for engine, total in _TOTALS.items()}


def _count(point: Mapping[str, Any], key: str, name: str) -> int:
    value = whole(point.get(key), f"{name}.{key}")
    if not value:
        raise Refused(f"{name}.{key} is {value}; expected 1 or more")
    return value


def _flops(cost: Mapping[str, Any], key: str, name: str) -> int | None:
    value = number(cost.get(key), f"{name}.{key}")
    if value is None:
        return None
    if value >= 1e6:
        raise Refused(f"{name}.{key} is {value:g}: out of all bounds")
    return round(value * 1e12)


def _times(cost: Mapping[str, Any], key: str, unit: float, name: str) -> float | None:
    value = number(cost.get(key), f"{name}.{key}")
    return None if value is None else value * unit


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
