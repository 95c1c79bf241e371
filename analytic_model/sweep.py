"""Any quantity over any axis: predictions at many points, a row each, for eager and flash attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import Literal, get_args

from analytic_model import roofline
from analytic_model.decoder import decode
from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import kv_cache_bytes, predict
from analytic_model.stage_cost import StageCost
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import preset_named
from dsocr_core.models.resolution import TILE_SIZE
from dsocr_core.models.stages import Stage
from dsocr_core.page.tiling import Grid

Axis = Literal["tiles", "decode", "prompt", "batch", "context"]
Quantity = Literal["flops", "bytes", "kv", "activations", "time", "compute", "memory"]
Engine = Literal["eager", "flash"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

TIMES: tuple[Quantity, ...] = ("time", "compute", "memory")
"""Quantities that depend on the device's figures."""
UNITS: dict[Quantity, str] = {"flops": "FLOP", "bytes": "B", "kv": "B", "activations": "B"}
UNITS |= dict.fromkeys(TIMES, "s")
MOST_POINTS = 10_000
MOST_VALUE = 1_000_000
"""Largest value of any axis."""
_FIELDS: dict[Axis, str] = {"decode": "decode_tokens", "prompt": "prompt_tokens", "batch": "batch"}


def spread(first: int, last: int, points: int) -> tuple[int, ...]:
    """That many whole numbers from `first` to `last`, evenly spaced, each once. Raises DsocrError."""
    if not 1 <= points <= MOST_POINTS:
        raise DsocrError(f"points is {points}; expected 1 to {MOST_POINTS:,}")
    if not 0 <= first <= last <= MOST_VALUE:
        raise DsocrError(f"from {first} to {last} is no range; expected 0 <= from <= to <= {MOST_VALUE:,}")
    steps = max(points - 1, 1)
    return tuple(dict.fromkeys(first + (last - first) * index // steps for index in range(points)))


def near_square(tiles: int) -> Grid:
    """Grid of that many tiles nearest to a square and not wider than high: (columns, rows)."""
    columns = next(side for side in range(isqrt(tiles), 0, -1) if tiles % side == 0)
    return columns, tiles // columns


def tiled(base: Workload, grid: Grid, preset: str = "gundam") -> Workload:
    """Page cut into that grid, also one that the published code does not make; (1, 1) is not cut."""
    count = 0 if grid == (1, 1) else grid[0] * grid[1]
    return replace(base, views=(TILE_SIZE,) * count + (preset_named(preset).base_size,), grid=grid)


def of_axis(base: Workload, axis: Axis, value: int) -> Workload:
    """Workload at a value of the axis; for `context` a page with one decoded token. Raises DsocrError.

    One tile means that the page is not cut.
    """
    if axis == "tiles":
        return tiled(base, near_square(max(value, 1)))
    if axis == "context":
        if value < 1:
            raise DsocrError(f"context is {value}; expected at least 1")
        return replace(base, decode_tokens=2)
    return replace(base, **{_FIELDS[axis]: value})  # type: ignore[arg-type]


def sweep(
    config: ModelConfig,
    base: Workload,
    axis: Axis,
    values: Sequence[int],
    quantity: Quantity,
    engines: Sequence[Engine],
    hardware: Hardware,
    policy: Policy | None = None,
) -> list[dict[str, object]]:
    """The quantity at each value of the axis, engine by engine: by stage, and their sum.

    FLOPs are those of the algorithm, FlashAttention's core included. Over `context` there is one decoded
    token and nothing else. Prefill is the language model alone. Raises DsocrError.
    """
    policy = replace(policy or Policy(), ignore_torch_unsupported_flops=False)
    if quantity in TIMES:
        hardware.peak_flops(policy.dtype)
    works = {value: of_axis(base, axis, value) for value in values}
    if axis == "tiles":
        works = {work.tile_count: work for work in works.values()}
    rows: list[dict[str, object]] = []
    for engine in engines:
        counted = replace(policy, attention="eager" if engine == "eager" else "flash_attention_2")
        for x, work in works.items():
            if axis == "context":
                costs = {Stage.DECODE: decode(config, x, 1, counted, work.batch)}
            else:
                costs = predict(config, work, counted).stages
            context = x if axis == "context" else None
            stages = {
                stage.value: _amount(config, cost, work, context, quantity, hardware, counted)
                for stage, cost in costs.items()
            }
            columns, of_tiles = work.grid if work.tile_count else (0, 0)
            rows.append(
                {
                    axis: x, "engine": engine, "tile_columns": columns, "tile_rows": of_tiles,
                    "image_tokens": work.image_tokens, "prompt_tokens": work.prompt_tokens,
                    "decode_tokens": 1 if axis == "context" else work.decode_tokens, "batch": work.batch,
                    "context_at_first_token": context or work.sequence_length, "quantity": quantity,
                    "unit": UNITS[quantity], **stages, "total": sum(stages.values()),
                }
            )  # fmt: skip
    return rows


def _amount(
    config: ModelConfig,
    stage: StageCost,
    work: Workload,
    context: int | None,
    quantity: Quantity,
    hardware: Hardware,
    policy: Policy,
) -> float:
    if quantity == "flops":
        return stage.cost.flops
    if quantity == "bytes":
        return stage.cost.bytes_moved
    if quantity == "activations":
        return stage.cost.activation_bytes
    if quantity in TIMES:
        bound = roofline.bound(stage, hardware, policy.dtype)
        return {"compute": bound.compute_ms, "memory": bound.memory_ms}.get(quantity, bound.time_ms) / 1e3
    # Bytes that a stage adds to the KV cache; over `context`, those in it after the token.
    decoded = work.decode_steps if context is None else context + 1
    positions = {Stage.PREFILL: work.sequence_length, Stage.DECODE: decoded}.get(stage.stage, 0)
    return kv_cache_bytes(config.decoder, positions, policy.dtype, work.batch)
