"""Resolution presets: `infer(base_size, image_size, crop_mode)` of the published code by name."""

from dataclasses import dataclass, replace
from math import ceil

TILE_SIZE = 640
"""Side of a crop tile in pixels; fixed in the published code whatever `image_size` says."""
MIN_TILES, MAX_TILES = 2, 9
"""Fewest and most tiles of a page that is cut, as published. Other engines take 6 or 32."""
PATCH_SIZE, DOWNSAMPLE_RATIO = 16, 4


@dataclass(frozen=True)
class Preset:
    """One resolution mode. A page that is cut has at most `max_tiles` tiles of `tile_size` pixels."""

    name: str
    base_size: int
    image_size: int
    crop_mode: bool
    max_tiles: int = MAX_TILES
    tile_size: int = TILE_SIZE

    @property
    def view_size(self) -> int:
        """Side in pixels of the global view as the model sees it."""
        return self.base_size if self.crop_mode else self.image_size


def by_name(*presets: Preset) -> dict[str, Preset]:
    """Presets of a model by name."""
    return {preset.name: preset for preset in presets}


def cut(preset: Preset, max_tiles: int = MAX_TILES, tile_size: int = TILE_SIZE) -> Preset:
    """Change how a preset cuts pages. Default arguments keep its own values."""
    if preset.crop_mode and max_tiles != MAX_TILES:
        preset = replace(preset, max_tiles=max_tiles)
    if preset.crop_mode and tile_size != TILE_SIZE:
        preset = replace(preset, image_size=tile_size, tile_size=tile_size)
    return preset


def tokens_per_side(size: int) -> int:
    """Vision tokens along one side of a square view of `size` pixels."""
    return ceil(size // PATCH_SIZE / DOWNSAMPLE_RATIO)
