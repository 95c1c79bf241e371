"""FLOPs of shapes of pages for the history: by arithmetic, by torch's counter, and what any code needs.

Kinds of rows, prefill being the language model alone in all of them (vision stands beside it):

- `analytic`: the closed form, under the conventions of torch's counter.
- `measured`: torch's FlopCounterMode over the core's modules on the meta device.
- `published`: the same over the published modules in the worker, on a page of a few tokens. They compute
  logits at every prompt position and the rotary angles by a product, so they have more.
- `least`: what the result needs (`roofline.least_work`), with the bytes that have to move: a lower bound.

A decoded token's FLOPs grow evenly with the context, up to a window: torch counts the token at the first and
the last position of all shapes, the positions between are a sum in whole numbers. Counts are cached by the
model's sizes, the sources of models and counting, and torch's version; for them torch is not imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytic_model.policy import DTYPE_BYTES, Policy
from analytic_model.predict import predict
from analytic_model.roofline import least_work
from analytic_model.workload import Workload
from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import cache_directory
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import parse_config, preset_named, spec_of
from dsocr_core.models.stages import Stage
from dsocr_core.page.tiling import image_token_count, view_sizes
from dsocr_core.reading.records import VENDOR
from dsocr_core.reading.writing import write_whole
from dsocr_core.runs.shapes import COLUMNS, COUNTED, Shape, counts_text, own_shapes

if TYPE_CHECKING:
    from analytic_model.measure import Meter
    from dsocr_core.runs.history import History

_ROOT = Path(__file__).parent
_SOURCES = (_ROOT / "measure.py", _ROOT / "counted.py", _ROOT / "workload.py")
_CACHE_LIMIT = 32 * 1024 * 1024

COUNTED_STEPS = 3
"""Decode steps of the published modules that must be counted before others are extrapolated."""

Row = dict[str, Any]
Counts = dict[str, int]
"""FLOPs by stage."""


def workload_of(config: ModelConfig, shape: Shape) -> Workload:
    """Workload of a shape on a model. Raises DsocrError for a shape that the model cannot have."""
    family = spec_of(config)
    preset = preset_named(shape.preset, family)
    image = image_token_count(preset, shape.grid, family.newline)
    return Workload(
        view_sizes(preset, shape.grid), shape.grid, shape.prompt_tokens - image, shape.new_tokens,
        newline=family.newline,
    )  # fmt: skip


def flop_rows(config: ModelConfig, shapes: Iterable[Shape], dtype: str | None) -> dict[Shape, list[Row]]:
    """Rows of `stage_flops` for each shape: shape, stage, kind, flops, bytes.

    Shapes that the model cannot have are left out. Bytes are not known without a number type.
    """
    works: dict[Shape, Workload] = {}
    for shape in dict.fromkeys(shapes):
        with contextlib.suppress(DsocrError):
            works[shape] = workload_of(config, shape)
    counted = measured(config, works)
    return {shape: _rows(config, shape, work, counted[shape], dtype) for shape, work in works.items()}


def run_rows(
    config: Mapping[str, Any] | None, dtype: str | None, shapes: Mapping[str, Iterable[Shape]]
) -> list[Mapping[str, Any]]:
    """Rows of `stage_flops` for the shapes of a run; none where its model is not known.

    `config` is the model's config.json.
    """
    if config is None or not shapes:
        return []
    rows = flop_rows(parse_config(config), [shape for each in shapes.values() for shape in each], dtype)
    return [
        {"backend": backend, **row}
        for backend, of_backend in shapes.items()
        for shape in of_backend
        for row in rows.get(shape, ())
    ]


def published_rows(
    config: Mapping[str, Any] | None, shapes: Iterable[Shape], calls: Mapping[str, Sequence[int]]
) -> list[Mapping[str, Any]]:
    """Rows of kind `published` for shapes that the published code read, from counted calls of its modules.

    `calls` are FLOPs by vision stage and, under `forward`, by pass of the whole model over the same page.
    Further passes are extrapolated where FLOPs grow evenly. Elsewhere, and beyond a window, decode is left
    out.
    """
    if config is None:
        return []
    parsed = parse_config(config)
    names = [stage.value for stage in spec_of(parsed).vision]
    vision = {name: sum(calls.get(name, ())) for name in names}
    prefill, *steps = calls["forward"]
    rows: list[Mapping[str, Any]] = []
    for shape in shapes:
        counts = vision | {Stage.PREFILL.value: prefill - sum(vision.values())}
        decoded = _grown(steps, shape.new_tokens - 1, parsed.decoder.window)
        if decoded is not None:
            counts[Stage.DECODE.value] = decoded
        about = {"backend": VENDOR, "shape": str(shape), "kind": "published", "bytes": None}
        rows += [about | {"stage": stage, "flops": float(flops)} for stage, flops in counts.items()]
    return rows


def _grown(steps: Sequence[int], count: int, window: int | None) -> int | None:
    """FLOPs of the first `count` steps. Steps that were not counted grow like the counted ones."""
    if count <= len(steps):
        return sum(steps[:count])
    growths = {after - before for before, after in pairwise(steps)}
    if len(steps) < COUNTED_STEPS or len(growths) != 1 or (window is not None and count > window):
        return None
    return count * steps[0] + growths.pop() * count * (count - 1) // 2


def count_run(history: History, run_id: str, config: Mapping[str, Any] | None = None) -> int:
    """Add counts of a recorded run's shapes. Returns how many rows. Raises DsocrError where it has none.

    `config` is the model's config.json, for a run that did not record it. A run's files are sealed by
    checksums, so the counts are an annotation; the last one counts.
    """
    record = history.record(run_id)
    shapes = own_shapes(history.rows(run_id, "readings", columns=COLUMNS).to_pylist())
    if not shapes:
        raise DsocrError(f"run {run_id}: none of its pages was read by eager, fast or vendor")
    if (model := record.config or config) is None:
        raise DsocrError(f"run {run_id}: it did not record its model's config: give --config")
    by_shape: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in run_rows(model, record.dtype, shapes):
        by_shape.setdefault((row["shape"], row["backend"]), []).append(row)
    if not by_shape:
        raise DsocrError(f"run {run_id}: its pages do not have shapes of this model: give another --config")
    noted = [(shape, backend, counts_text(rows)) for (shape, backend), rows in by_shape.items()]
    history.annotate(run_id, COUNTED, noted)
    return len(noted)


def _rows(
    config: ModelConfig, shape: Shape, work: Workload, counted: Mapping[str, int], dtype: str | None
) -> list[Row]:
    policy = Policy(dtype=dtype) if dtype in DTYPE_BYTES else Policy()  # type: ignore[arg-type]
    analytic, least = (predict(config, work, each).stages for each in (policy, least_work(policy)))
    rows: list[Row] = []
    for stage in analytic:
        moved = float(least[stage].compulsory_bytes) if dtype in DTYPE_BYTES else None
        for kind, flops, of_kind in (
            ("analytic", analytic[stage].cost.flops, None),
            ("measured", counted[stage.value], None),
            ("least", least[stage].cost.flops, moved),
        ):
            row = {"shape": str(shape), "stage": stage.value, "kind": kind, "flops": float(flops)}
            rows.append(row | {"bytes": of_kind})
    return rows


# --- torch's counter, and its cache -----------------------------------------------------------------------


def measured(config: ModelConfig, works: Mapping[Shape, Workload]) -> dict[Shape, Counts]:
    """FLOPs of each shape by stage from torch's counter. Counts that the cache lacks are made now."""
    file = cache_directory() / "flops" / f"{_digest(config)}.json"
    known = _read(file)
    new = {shape: work for shape, work in works.items() if str(shape) not in known}
    if new:
        known |= {str(shape): counts for shape, counts in _count(config, new).items()}
        with contextlib.suppress(OSError):  # a count that cannot be stored is made again
            write_whole(file, json.dumps(known).encode())
    return {shape: known[str(shape)] for shape in works}


def _count(config: ModelConfig, works: Mapping[Shape, Workload]) -> dict[Shape, Counts]:
    from analytic_model.measure import Meter

    meter = Meter(config)
    decoded = _decoded(meter, config, works)
    found: dict[Shape, Counts] = {}
    for shape, work in works.items():
        stages = meter.measure(replace(work, decode_tokens=1))
        found[shape] = {stage.value: flops.total() for stage, flops in stages.items()}
        found[shape][Stage.DECODE.value] = decoded[shape]
    return found


def _decoded(meter: Meter, config: ModelConfig, works: Mapping[Shape, Workload]) -> dict[Shape, int]:
    """FLOPs of all decoded tokens of each shape, from two counted tokens. Raises DsocrError."""
    window = config.decoder.window
    spans = {}
    for shape, work in works.items():
        first, last = work.sequence_length, work.sequence_length + work.decode_steps - 1
        edge = last if window is None else min(last, first + window - 1)
        spans[shape] = (first, edge, last)
    steps = [span for span in spans.values() if span[2] >= span[0]]
    if not steps:
        return dict.fromkeys(works, 0)
    low, high = min(span[0] for span in steps), max(span[1] for span in steps)

    def at(context: int, prompt: int) -> int:
        return meter.forward(context, 1, prompt=prompt).total()

    prompt = next(span[0] for span in steps if span[1] == high)
    base, growth = at(low, low), 0
    if high > low:
        growth, rest = divmod(at(high, prompt) - base, high - low)
        if rest:
            raise DsocrError("FLOPs of a decoded token do not grow evenly with the context")

    def summed(first: int, edge: int, last: int) -> int:
        count = edge - first + 1
        growing = count * base + growth * (count * (first - low) + count * (count - 1) // 2)
        return growing + (last - edge) * (base + growth * (edge - low))

    for first, edge, last in steps:
        if last > edge and at(last, first) != base + growth * (edge - low):
            raise DsocrError("FLOPs of a decoded token change beyond the decoder's window")
    return {shape: summed(*span) if span[2] >= span[0] else 0 for shape, span in spans.items()}


def _digest(config: ModelConfig) -> str:
    """Hash of all that a count depends on."""
    digest = hashlib.sha256(json.dumps(asdict(config), sort_keys=True, default=str).encode())
    digest.update(importlib.metadata.version("torch").encode())
    models = sorted((_ROOT.parent / "dsocr_core" / "models").rglob("*.py"))
    for source in (*_SOURCES, *models):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _read(file: Path) -> dict[str, Counts]:
    try:
        document = parse_json(read_bytes(file, _CACHE_LIMIT))
    except InvalidFile:
        return {}
    shapes = document.values() if isinstance(document, dict) else [None]
    good = all(isinstance(of, dict) and all(isinstance(n, int) for n in of.values()) for of in shapes)
    return document if good else {}
