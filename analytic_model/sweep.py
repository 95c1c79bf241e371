"""Any quantity over any axis: the prediction at many points, stage by stage, eager and flash attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Literal, get_args

from analytic_model import roofline
from analytic_model.decoder import decode
from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import StageCost, kv_cache_bytes, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import preset_named
from dsocr_core.models.resolution import TILE_SIZE, tokens_per_side
from dsocr_core.models.stages import Stage
from dsocr_core.page.tiling import Grid

Axis = Literal["tiles", "image-tokens", "decode", "prompt", "batch", "context"]
Quantity = Literal["flops", "bytes", "kv", "activations", "time", "compute", "memory"]
Engine = Literal["eager", "flash"]
AXES: tuple[Axis, ...] = get_args(Axis)
ENGINES: tuple[Engine, ...] = get_args(Engine)

AXIS_WORDS: dict[Axis, str] = {
    "tiles": "tiles of the page",
    "image-tokens": "positions of the image in the prompt",
    "decode": "new tokens",
    "prompt": "text tokens of the prompt",
    "batch": "pages at once",
    "context": "positions in the KV cache before one new token",
}
QUANTITY_WORDS: dict[Quantity, str] = {
    "flops": "FLOPs of products and convolutions",
    "bytes": "bytes that the operators read and write",
    "kv": "size of the KV cache at the end",
    "activations": "bytes of activations read and written",
    "time": "least time on the device",
    "compute": "time of computing at the device's peak",
    "memory": "time of moving what has to move at its bandwidth",
}
TIMES: tuple[Quantity, ...] = ("time", "compute", "memory")
"""Quantities that need the device's figures."""
UNITS: dict[Quantity, str] = {"flops": "FLOP", "bytes": "B", "kv": "B", "activations": "B"}
UNITS |= dict.fromkeys(TIMES, "s")
MOST_POINTS = 10_000
MOST_VALUE = 1_000_000
"""Largest value of any axis."""
_FIELDS: dict[Axis, str] = {"decode": "decode_tokens", "prompt": "prompt_tokens", "batch": "batch"}
_ATTENTION: dict[Engine, Literal["eager", "flash_attention_2"]] = {
    "eager": "eager",
    "flash": "flash_attention_2",
}


class SweepError(DsocrError, ValueError):
    """A range or an axis that cannot be swept; names the field."""


@dataclass(frozen=True)
class Point:
    """One workload of a sweep under one engine."""

    x: int
    """On the axis."""
    engine: Engine
    workload: Workload
    context: int
    """Positions in the KV cache before the first decoded token."""
    stages: dict[Stage, float]
    """The quantity of each stage; a sum over them is the page's. Prefill is the language model alone."""

    @property
    def total(self) -> float:
        return sum(self.stages.values())


def spread(first: int, last: int, points: int) -> tuple[int, ...]:
    """Spread that many whole numbers from `first` to `last`, evenly, each once. Raises SweepError."""
    if not 1 <= points <= MOST_POINTS:
        raise SweepError(f"points is {points}; expected 1 to {MOST_POINTS:,}")
    if not 0 <= first <= last <= MOST_VALUE:
        raise SweepError(f"from {first} to {last} is no range; expected 0 <= from <= to <= {MOST_VALUE:,}")
    steps = max(points - 1, 1)
    return tuple(dict.fromkeys(first + (last - first) * index // steps for index in range(points)))


def near_square(tiles: int) -> Grid:
    """The grid of that many tiles nearest to a square, not wider than high: (columns, rows)."""
    columns = next(side for side in range(isqrt(tiles), 0, -1) if tiles % side == 0)
    return columns, tiles // columns


def tiled(base: Workload, grid: Grid, preset: str = "gundam") -> Workload:
    """The page cut into that grid, beyond what the published code cuts too; (1, 1) is not cut."""
    count = 0 if grid == (1, 1) else grid[0] * grid[1]
    return replace(base, views=(TILE_SIZE,) * count + (preset_named(preset).base_size,), grid=grid)


def of_axis(base: Workload, axis: Axis, values: Sequence[int]) -> Iterator[tuple[int, Workload, int | None]]:
    """(x, workload, context) of each point; context None where decode follows on prefill.

    A page of one tile is not cut: it has none. `image-tokens` takes, for each value, the number of tiles
    that comes nearest; x is what the page then has. Raises DsocrError for a value that the axis has not.
    """
    if axis == "image-tokens":
        last = 0
        for count in dict.fromkeys(_compact(_tiles_of(tokens)) for tokens in values):
            work = tiled(base, near_square(count))
            if work.image_tokens > last:
                last = work.image_tokens
                yield last, work, None
        return
    if axis == "tiles":
        for value in dict.fromkeys(max(value, 1) for value in values):
            work = tiled(base, near_square(value))
            yield work.tile_count, work, None
        return
    for value in values:
        if axis == "context":
            if value < 1:
                raise SweepError(f"context is {value}; expected at least 1")
            yield value, replace(base, decode_tokens=2), value
        else:
            yield value, replace(base, **{_FIELDS[axis]: value}), None  # type: ignore[arg-type]


def _tiles_of(tokens: int) -> int:
    """Find the number of tiles that comes nearest to that many image tokens: a tile has 100, its rows' ends
    aside.
    """
    view = tokens_per_side(TILE_SIZE) ** 2
    return max((tokens - Workload.single_view().image_tokens + view // 2) // view, 1)


def _compact(tiles: int) -> int:
    """The most tiles, not more than these, whose grid is at most three times as high as wide.

    A strip of tiles has so many row ends that more tiles may make fewer tokens.
    """
    while True:
        columns, rows = near_square(tiles)
        if rows <= 3 * columns:
            return tiles
        tiles -= 1


def sweep(
    config: ModelConfig,
    base: Workload,
    axis: Axis,
    values: Sequence[int],
    quantity: Quantity,
    engines: Sequence[Engine],
    hardware: Hardware,
    policy: Policy | None = None,
) -> list[Point]:
    """The quantity at each value of the axis for each engine, engine by engine.

    FLOPs are those of the algorithm, also of FlashAttention's core, which torch's counter does not see.
    Over `context` there is one decoded token and nothing else. Raises DsocrError.
    """
    policy = replace(policy or Policy(), ignore_torch_unsupported_flops=False)
    if quantity in TIMES:
        hardware.peak_flops(policy.dtype)
    points = list(of_axis(base, axis, values))
    found = []
    for engine in engines:
        counted = replace(policy, attention=_ATTENTION[engine])
        for x, work, context in points:
            costs = _costs(config, work, context, counted)
            stages = {
                stage: _amount(config, cost, work, context, quantity, hardware, counted)
                for stage, cost in costs.items()
            }
            found.append(Point(x, engine, work, context or work.sequence_length, stages))
    return found


def _costs(
    config: ModelConfig, work: Workload, context: int | None, policy: Policy
) -> dict[Stage, StageCost]:
    if context is None:
        return predict(config, work, policy).stages
    return {Stage.DECODE: decode(config, context, 1, policy, work.batch)}


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
    return _cached(config, stage.stage, work, context, policy)


def _cached(config: ModelConfig, stage: Stage, work: Workload, context: int | None, policy: Policy) -> int:
    """Bytes that a stage leaves in the KV cache; over `context`, those that are there after its token."""
    positions = 0
    if stage == Stage.PREFILL:
        positions = work.sequence_length
    elif stage == Stage.DECODE:
        positions = work.decode_steps if context is None else context + 1
    return kv_cache_bytes(config.decoder, positions, policy.dtype, work.batch)


def as_rows(points: Sequence[Point], axis: Axis, quantity: Quantity) -> list[dict[str, object]]:
    """One row a point: where it stands, each stage's amount, the total, the unit."""
    rows: list[dict[str, object]] = []
    for point in points:
        work = point.workload
        columns, rows_of_tiles = work.grid if work.tile_count else (0, 0)
        rows.append(
            {
                axis: point.x,
                "engine": point.engine,
                "tile_columns": columns,
                "tile_rows": rows_of_tiles,
                "image_tokens": work.image_tokens,
                "prompt_tokens": work.prompt_tokens,
                "decode_tokens": 1 if axis == "context" else work.decode_tokens,
                "batch": work.batch,
                "context_at_first_token": point.context,
                "quantity": quantity,
                "unit": UNITS[quantity],
                **{stage.value: point.stages[stage] for stage in point.stages},
                "total": point.total,
            }
        )
    return rows


def crossing(
    x: Sequence[int], compute: Sequence[float], memory: Sequence[float]
) -> tuple[float, float] | None:
    """The place on an axis, and the time there, from which computing takes as long as moving bytes.

    None when it never does, or does from the first place on. Between two places both times are taken to be
    straight lines.
    """
    ahead = [there - here for here, there in zip(compute, memory, strict=True)]  # above 0: bytes take longer
    after = next((index for index, off in enumerate(ahead) if off <= 0), None)
    if not after:
        return None
    share = ahead[after - 1] / (ahead[after - 1] - ahead[after])
    return tuple(  # type: ignore[return-value]
        values[after - 1] * (1 - share) + values[after] * share for values in (x, compute)
    )
