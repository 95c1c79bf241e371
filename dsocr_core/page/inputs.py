"""Inputs of a model for a page: its views with their hashes, and counts of tokens.

Needs no weights and no torch. Letters as in preprocess.py: T tiles, S side of the global view, H and W sides
of any view; N images of one prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from dsocr_core.page.documents import open_page
from dsocr_core.page.preprocess import PreparedImage, prepare, views_sha256
from dsocr_core.page.prompt import build_prompt, prompt_layout
from dsocr_core.page.resizing import MOST_BANDS, Bytes
from dsocr_core.page.tiling import Grid, image_token_count, page_grid, tile_count
from dsocr_core.reading.records import OcrRequest

Size = tuple[int, int]
"""Width and height in pixels."""
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class View:
    """One tensor of the model: all views of one size."""

    name: Literal["global", "tiles"]
    shape: tuple[int, ...]
    """(N, 3, S, S), or (T, 3, H, W)."""
    sha256: str
    """SHA-256 of its bytes in bf16, little endian."""


@dataclass(frozen=True)
class PromptInputs:
    """One prompt and its images."""

    request: OcrRequest
    names: tuple[str, ...] | None
    """Names of pages that stand together; None for one by itself."""
    sizes: tuple[Size, ...]
    """Sizes of the images, upright."""
    grid: Grid
    views: tuple[View, ...]
    image_tokens: int
    prompt_tokens: int | None
    """Length of the whole prompt, the image's tokens too; None where the text's are not known."""
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Make the JSON; pages that stand together have `images` and `sizes` in place of `image`."""
        (width, height), *others = dict.fromkeys(self.sizes)
        together = {"images": list(self.names or ()), "sizes": [list(size) for size in self.sizes]}
        return {
            **({"image": self.request.name} if self.names is None else together),
            "model": self.request.model,
            "preset": self.request.preset,
            "width": None if others else width,  # pages of one prompt may differ
            "height": None if others else height,
            "grid": list(self.grid),
            "tiles": tile_count(self.grid),
            "image_tokens": self.image_tokens,
            "prompt_tokens": self.prompt_tokens,
            "views": [{"name": v.name, "shape": list(v.shape), "sha256": v.sha256} for v in self.views],
            "notes": list(self.notes),
        }


def prompt_inputs(
    request: OcrRequest, encode: Encode | None, max_pixels: int, names: tuple[str, ...] | None = None
) -> PromptInputs:
    """Find what the model gets under a request; of several images one is held at a time. Raises DsocrError.

    `encode` makes a text's tokens; without it their number is not known. `names` are those of pages that
    share a prompt, as a note of one of them begins.
    """
    preset = request.resolution
    sizes: list[Size] = []
    notes: list[str] = []

    def prepared(number: int) -> PreparedImage:
        page = open_page(request.images[number], max_pixels, request.exif)
        image = prepare(page.image, preset, MOST_BANDS)
        sizes.append(image.image_size)
        opened = "turned as its EXIF says" if page.turned else None, page.notice
        notes.extend(f"{names[number]}: {each}" if names else each for each in opened if each)
        return image

    def global_views() -> Iterator[Bytes]:
        yield first.global_view
        for number in range(1, len(request.images)):
            yield prepared(number).global_view

    first, side, count = prepared(0), preset.view_size, len(request.images)
    views = [View("global", (count, 3, side, side), views_sha256(global_views()))]
    if tiles := len(first.tiles):
        views.append(View("tiles", (tiles, 3, *first.tiles.shape[1:3]), views_sha256(first.tiles)))
    image_tokens = count * image_token_count(preset, first.grid, request.family.newline)
    text_tokens = _text_tokens(request, encode)
    prompt_tokens = None if text_tokens is None else text_tokens + image_tokens
    return PromptInputs(
        request, names, tuple(sizes), first.grid, tuple(views), image_tokens, prompt_tokens, tuple(notes)
    )


def longest_prompt(request: OcrRequest, size: Size, encode: Encode) -> int:
    """Tokens of the prompt of one image of that size, under its preset or the one that servers have.

    Raises PromptError.
    """
    family, presets = request.family, (request, replace(request, preset=request.family.preset))
    grids = ((each.resolution, page_grid(*size, each.resolution)) for each in presets)
    image = max(image_token_count(preset, grid, family.newline) for preset, grid in grids)
    return image + len(
        prompt_layout(encode, build_prompt(request.required.prompt, request.template), 0, 0, 0).ids
    )


def _text_tokens(request: OcrRequest, encode: Encode | None) -> int | None:
    """Count the text's tokens with bos; None without a tokenizer. Raises PromptError."""
    text = build_prompt(request.required.prompt, request.template)
    layout = prompt_layout(encode or (lambda _: []), text, 0, 0, 0)
    return None if encode is None else len(layout.ids)
