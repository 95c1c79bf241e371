"""The figures that the published `infer(test_compress=True)` prints: image tokens against text tokens."""

from __future__ import annotations

from typing import NamedTuple

from dsocr_core.models.resolution import TILE_SIZE
from dsocr_core.page.tiling import tile_count
from dsocr_core.reading.records import OcrResult

_WHOLE_VIEW, _SQUEEZED_VIEW, _TILE = {1024: 256, 1280: 400}, {640: 100, 512: 64}, 100
"""Tokens of a padded global view, of which the part that shows the page counts; of one without padding; of
a tile."""


class Compression(NamedTuple):
    """Figures of one page of one backend. Sizes are (width, height) in pixels after EXIF orientation."""

    image_size: tuple[int, int]
    valid_image_tokens: int
    text_tokens: int

    @property
    def ratio(self) -> float | None:
        """Text tokens per valid image token, to two digits as printed; None where no token is valid."""
        return round(self.text_tokens / self.valid_image_tokens, 2) if self.valid_image_tokens else None

    def __str__(self) -> str:
        ratio = "not defined" if self.ratio is None else f"{self.ratio:g}"
        tokens = f"valid image tokens {self.valid_image_tokens}, text tokens {self.text_tokens}"
        return f"image size {self.image_size}, {tokens}, compression ratio {ratio}"


def compression(result: OcrResult) -> Compression | None:
    """The figures of a result; None where they were not asked for, or the grid of tiles is not known.

    Valid image tokens show the page and not its padding, as published.
    """
    if result.text_tokens is None or result.inputs is None:
        return None
    preset, longer, shorter = result.request.resolution, max(result.image_size), min(result.image_size)
    shown = 1 - (longer - shorter) / longer  # in this order, as it is truncated below
    valid = int(_WHOLE_VIEW.get(preset.base_size, 0) * shown)
    if not preset.crop_mode:
        valid += _SQUEEZED_VIEW.get(preset.base_size, 0)
    elif preset.image_size == TILE_SIZE:
        valid += _TILE * tile_count(result.inputs.grid)
    return Compression(result.image_size, valid, result.text_tokens)
