"""What the host does of a page before the device can start, and beside it: part by part, each in two ways.

    dsocr measure host-path --size 1280x1280

"Straight" is the part as a few lines of Pillow, numpy and hashlib would do it; the other is the project's.
Both run in turn, so what else the machine does hits both alike, and their results must be the same bytes.
Processor time is that of this process: a page is opened in another one, which shows on the clock alone.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from rich.console import Console
from rich.table import Table

from dsocr_core.console import OK, print_json
from dsocr_core.errors import DsocrError
from dsocr_core.inputs.documents import load_image
from dsocr_core.inputs.preprocess import (
    NORMALISED,
    PAD_COLOUR,
    prepare,
    tensor_sha256,
    to_bfloat16,
)
from dsocr_core.inputs.resizing import MOST_BANDS, Bytes
from dsocr_core.inputs.tiling import NO_TILES, page_grid
from dsocr_core.measure.synthetic_page import draw_page, parse_size
from dsocr_core.outside.temporary import Temporary
from dsocr_core.resolution import TILE_SIZE, Preset, preset_named

Views = tuple[Bytes, Bytes]
"""The global view (S, S, 3) and the tiles (T, 640, 640, 3)."""


@dataclass(frozen=True)
class Part:
    """Medians in ms. `straight` is None where there is one way only."""

    name: str
    straight_cpu_ms: float | None
    straight_ms: float | None
    cpu_ms: float
    ms: float


def run(
    *,
    size: str = "1280x1280",
    preset: str = "gundam",
    repeat: int = 20,
    json: bool = False,
    console: Console,
) -> int:
    """Time what the host does of a page: opening, resizing, hashes.

    Args:
        size: of the drawn page, like 1280x1280
        preset: tiny, small, base, large or gundam
        repeat: measured passes of each way
    """
    pixels, chosen = parse_size(size), preset_named(preset)
    with Temporary("host-path") as folder:
        parts = measure(draw_page(Path(folder) / "page.png", pixels, 0), chosen, repeat)
    if json:
        print_json({"size": pixels, "preset": preset, "bands": MOST_BANDS, "repeat": repeat,
                    "parts": [asdict(part) for part in parts]})  # fmt: skip
        return OK
    table = Table(title=f"Host path, {pixels[0]}x{pixels[1]}, {preset}, {MOST_BANDS} threads, ms")
    for heading in ("part", "straight: processor", "clock", "here: processor", "clock"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in parts:
        figures = part.straight_cpu_ms, part.straight_ms, part.cpu_ms, part.ms
        table.add_row(part.name, *("" if figure is None else f"{figure:.1f}" for figure in figures))
    console.print(table)
    return OK


def measure(page: Path, preset: Preset, repeat: int) -> list[Part]:
    """Every part of one page."""
    image = load_image(page)
    view, tiles = _straight_views(image, preset)
    prepared = prepare(image, preset, MOST_BANDS)
    hashed = view[None], tiles
    same_views = np.array_equal(prepared.global_view, view) and np.array_equal(prepared.tiles, tiles)
    if not same_views or any(tensor_sha256(part) != _straight_sha256(part) for part in hashed):
        raise DsocrError(f"host-path: the two ways of a {preset.name} page differ; run the tests of inputs")
    return [
        _part("open", None, lambda: load_image(page), repeat),
        _part("resize and pad", lambda: _straight_views(image, preset),
              lambda: prepare(image, preset, MOST_BANDS), repeat),
        _part("hashes (beside the device)", lambda: [_straight_sha256(part) for part in hashed],
              lambda: [tensor_sha256(part) for part in hashed], repeat),
    ]  # fmt: skip


def _part(name: str, straight: Callable[[], object] | None, here: Callable[[], object], repeat: int) -> Part:
    ways = [here] if straight is None else [straight, here]
    times: list[list[tuple[float, float]]] = [[] for _ in ways]
    for _ in range(1 + repeat):
        for way, of_way in zip(ways, times, strict=True):
            cpu, clock = time.process_time(), time.perf_counter()
            way()
            of_way.append((time.process_time() - cpu, time.perf_counter() - clock))
    medians = [_medians(of_way[1:]) for of_way in times]  # the first pass warms up
    (cpu, clock), before = medians[-1], (None, None) if straight is None else medians[0]
    return Part(name, before[0], before[1], cpu, clock)


def _medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    cpu, clock = zip(*times, strict=True)
    return 1e3 * statistics.median(cpu), 1e3 * statistics.median(clock)


def _straight_views(image: Image.Image, preset: Preset) -> Views:
    grid, side, tile = page_grid(*image.size, preset), preset.view_size, preset.tile_size
    tiles = np.zeros((0, tile, tile, 3), np.uint8)
    if grid != NO_TILES:
        whole = np.asarray(image.resize((grid[0] * tile, grid[1] * tile)))
        cells = whole.reshape(grid[1], tile, grid[0], tile, 3).transpose(0, 2, 1, 3, 4)
        tiles = np.ascontiguousarray(cells).reshape(-1, tile, tile, 3)
    if not preset.crop_mode and preset.image_size <= TILE_SIZE:
        image = image.resize((side, side))
    return np.asarray(ImageOps.pad(image, (side, side), color=PAD_COLOUR)), tiles


def _straight_sha256(views: Bytes) -> str:
    values = np.moveaxis(to_bfloat16(NORMALISED).astype("<u2")[views], -1, -3)
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
