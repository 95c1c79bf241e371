"""Resolution presets Tiny..Gundam: the only home of 512, 640, 1024 and 1280.

Source: the published model card; what `infer(base_size, image_size, crop_mode)` does with them.
"""

from dataclasses import dataclass, replace
from math import ceil

from dsocr_core.errors import DsocrError

TILE_SIZE = 640
"""Side of a crop tile in pixels; fixed in the published code whatever `image_size` says."""

MIN_TILES = 2
MAX_TILES = 9
"""Tiles of a page that is cut, as published; other engines stop at 6 or go on to 32."""

PATCH_SIZE = 16
DOWNSAMPLE_RATIO = 4


@dataclass(frozen=True)
class Preset:
    """One resolution mode. `base_size` is the side of the global view, `image_size` of a tile.

    Of a page that is cut there are at most `max_tiles` tiles of `tile_size` pixels.
    """

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


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("tiny", 512, 512, crop_mode=False),
        Preset("small", 640, 640, crop_mode=False),
        Preset("base", 1024, 1024, crop_mode=False),
        Preset("large", 1280, 1280, crop_mode=False),
        Preset("gundam", 1024, 640, crop_mode=True),
    )
}


class UnknownPresetError(DsocrError, ValueError):
    """A preset name that is none of Tiny..Gundam."""


def preset_named(name: str) -> Preset:
    """The preset of that name, in any case. Raises UnknownPresetError that lists the names."""
    try:
        return PRESETS[name.lower()]
    except KeyError:
        raise UnknownPresetError(f"unknown preset '{name}': choose one of {', '.join(PRESETS)}") from None


def preset_cut(name: str, max_tiles: int = MAX_TILES, tile_size: int = TILE_SIZE) -> Preset:
    """The preset of that name, cutting pages as another engine does. Raises UnknownPresetError.

    A preset without tiles stays what it is.
    """
    preset = preset_named(name)
    if not preset.crop_mode or (max_tiles, tile_size) == (MAX_TILES, TILE_SIZE):
        return preset
    return replace(preset, image_size=tile_size, max_tiles=max_tiles, tile_size=tile_size)


def tokens_per_side(size: int) -> int:
    """Vision tokens along one side of a square view of `size` pixels."""
    return ceil(size // PATCH_SIZE / DOWNSAMPLE_RATIO)
