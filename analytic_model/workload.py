"""Shape of one page's work (views, tokens, steps), from the core's tiling and presets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import FIRST, preset_named
from dsocr_core.models.resolution import PATCH_SIZE, tokens_per_side
from dsocr_core.models.spec import ModelSpec
from dsocr_core.page.tiling import NO_TILES, Grid, page_grid, tile_count, view_sizes


@dataclass(frozen=True)
class Workload:
    views: tuple[int, ...]
    """Sides in pixels of the square views: tiles first, the global view last."""
    grid: Grid = NO_TILES
    """Tiles as (columns, rows)."""
    prompt_tokens: int = 10
    """Text tokens of the prompt, bos included, without the image's positions."""
    decode_tokens: int = 1
    """New tokens, the first of which comes from prefill."""
    batch: int = 1
    """Pages of this shape together."""
    newline: bool = True
    """True where the model ends each row of a view with a learned token."""

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "decode_tokens", "batch"):
            _at_least(name, getattr(self, name), 1)
        if not self.views:
            raise DsocrError("views is empty; a page has at least its global view")
        for side in self.views:
            _at_least("views", side, PATCH_SIZE)
        if len(self.grid) != 2:
            raise DsocrError(f"grid is {self.grid!r}; expected (columns, rows)")
        for number in self.grid:
            _at_least("grid", number, 1)
        if self.tile_count and len(self.views) != self.tile_count + 1:
            columns, rows = self.grid
            raise DsocrError(
                f"views has {len(self.views)} sides; a grid of {columns} x {rows} has {self.tile_count + 1}"
            )
        if len(set(self.views[: self.tile_count])) > 1:
            raise DsocrError(f"views has tiles of different sides: {self.views[: self.tile_count]}")

    @classmethod
    def from_image(
        cls,
        width: int,
        height: int,
        preset: str = "gundam",
        prompt_tokens: int = 10,
        decode_tokens: int = 1,
        batch: int = 1,
        family: ModelSpec = FIRST,
    ) -> Workload:
        """Workload of a page of `width` x `height` pixels. Raises DsocrError that names the field."""
        chosen = preset_named(preset, family)
        _at_least("width", width, 1)
        _at_least("height", height, 1)
        grid = page_grid(width, height, chosen)
        return cls(view_sizes(chosen, grid), grid, prompt_tokens, decode_tokens, batch, family.newline)

    @cached_property
    def tile_count(self) -> int:
        return tile_count(self.grid)

    @cached_property
    def view_groups(self) -> tuple[tuple[int, int], ...]:
        """(views, side) of each pass through the towers: tiles, then other views by side."""
        tiles, rest = self.views[: self.tile_count], self.views[self.tile_count :]
        return tuple((len(list(group)), side) for part in (tiles, rest) for side, group in groupby(part))

    @cached_property
    def vision_tokens(self) -> int:
        """Outputs of the projector over all views of a page."""
        return sum(tokens_per_side(side) ** 2 for side in self.views)

    @cached_property
    def row_ends(self) -> int:
        """Positions of the image that hold the learned newline."""
        if not self.newline:
            return 0
        rows = sum(tokens_per_side(side) for side in self.views[self.tile_count :])
        if self.tile_count:
            rows += tokens_per_side(self.views[0]) * self.grid[1]
        return rows

    @property
    def image_tokens(self) -> int:
        """Positions of the image in the prompt: vision tokens, row ends, the separator."""
        return self.vision_tokens + self.row_ends + 1

    @property
    def sequence_length(self) -> int:
        """Positions that prefill computes."""
        return self.image_tokens + self.prompt_tokens

    @property
    def decode_steps(self) -> int:
        """Forward passes after prefill."""
        return self.decode_tokens - 1

    @property
    def final_length(self) -> int:
        """Prompt and new tokens together."""
        return self.sequence_length + self.decode_tokens

    @property
    def cached_length(self) -> int:
        """Positions in the KV cache at the end. The last new token is never fed back."""
        return self.sequence_length + self.decode_steps


def _at_least(name: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise DsocrError(f"{name} is {value!r}; expected an integer >= {minimum}")
