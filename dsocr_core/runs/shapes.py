"""Shapes of pages: what decides how much work a page is, and the FLOPs of a shape as rows and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsocr_core.models.resolution import TILE_SIZE
from dsocr_core.reading.records import VENDOR

OWN_MODEL = ("eager", "fast", VENDOR)
"""Backends that run the settings' checkpoint. Of others the model is not known."""
COLUMNS = (
    "backend", "preset", "grid_columns", "grid_rows", "prompt_tokens", "new_tokens", "error", "request",
)  # fmt: skip
"""Columns of readings that tell a shape."""

SHAPE_SQL = f"""
    CASE WHEN error IS NULL AND coalesce(len(request.more), 0) = 0
              AND coalesce(request.tile_size, {TILE_SIZE}) = {TILE_SIZE}
         THEN preset || ' ' || grid_columns || 'x' || grid_rows || ', ' || prompt_tokens || ' + '
              || new_tokens || ' tokens' END
"""
"""A reading's shape as DuckDB writes it; null where a fact is not known, or it is no page of usual tiles."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """Shape of a page."""

    preset: str
    grid: tuple[int, int]  # tiles as (columns, rows)
    prompt_tokens: int  # positions of the whole prompt, the image's span included
    new_tokens: int

    def __str__(self) -> str:
        columns, rows = self.grid
        return f"{self.preset} {columns}x{rows}, {self.prompt_tokens} + {self.new_tokens} tokens"


def own_shapes(readings: Iterable[Row]) -> dict[str, list[Shape]]:
    """The shapes that each backend with the run's own model read, each once; those that SHAPE_SQL has."""
    found: dict[str, dict[Shape, None]] = {}
    for row in readings:
        request, (preset, *grid, prompt, new) = row["request"] or {}, [row[name] for name in COLUMNS[1:6]]
        usual = not request.get("more") and (request.get("tile_size") or TILE_SIZE) == TILE_SIZE
        known = row["error"] is None and None not in (preset, *grid, prompt) and new
        if row["backend"] in OWN_MODEL and usual and known:
            found.setdefault(row["backend"], {})[Shape(preset, (grid[0], grid[1]), prompt, new)] = None
    return {backend: list(shapes) for backend, shapes in found.items()}


# --- as an annotation -----------------------------------------------------------------------------


def counts_text(rows: Sequence[Row]) -> str:
    """Rows of one shape as an annotation's value: `sam analytic 12 345;...`, bytes last, `-` for none."""
    return ";".join(
        f"{row['stage']} {row['kind']} {row['flops']:.0f} "
        + ("-" if row["bytes"] is None else f"{row['bytes']:.0f}")
        for row in rows
    )


COUNTED = "flops"
"""Kind of the annotation that has a shape's counts: its page is the shape, its name the backend."""
COUNTS_SQL = f"""
    SELECT run_id, name AS backend, page AS shape, split_part(item, ' ', 1) AS stage,
           split_part(item, ' ', 2) AS kind, try_cast(split_part(item, ' ', 3) AS DOUBLE) AS flops,
           try_cast(split_part(item, ' ', 4) AS DOUBLE) AS bytes
    FROM (
        SELECT run_id, name, page, unnest(string_split(arg_max(value, position), ';')) AS item
        FROM annotations WHERE kind = '{COUNTED}' AND value IS NOT NULL
        GROUP BY run_id, name, page
    )
"""
"""Rows of stage_flops that annotations have."""
