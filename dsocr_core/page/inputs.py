"""Inputs of a model for a page: its views with their hashes, and counts of tokens; no weights, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dsocr_core.page.documents import open_page
from dsocr_core.page.preprocess import Bytes, PreparedImage, prepare, views_sha256
from dsocr_core.page.prompt import build_prompt, prompt_layout
from dsocr_core.page.tiling import image_token_count, page_grid, tile_count
from dsocr_core.reading.records import OcrRequest

Size = tuple[int, int]
"""Width and height in pixels."""
Encode = Callable[[str], list[int]]


def prompt_inputs(
    request: OcrRequest, encode: Encode | None, max_pixels: int, names: tuple[str, ...] | None = None
) -> dict[str, Any]:
    """The JSON of what the model gets under a request; of several images one is held at a time.

    Without `encode`, which makes a text's tokens, their number is not known. `names` are those of pages that
    share a prompt, as a note of one of them begins. Raises DsocrError.
    """
    preset, count = request.resolution, len(request.images)
    sizes: list[Size] = []
    notes: list[str] = []

    def prepared(number: int) -> PreparedImage:
        page = open_page(request.images[number], max_pixels, request.exif)
        sizes.append(page.image.size)
        opened = "turned as its EXIF says" if page.turned else None, page.notice
        notes.extend(f"{names[number]}: {each}" if names else each for each in opened if each)
        return prepare(page.image, preset)

    def global_views() -> Iterator[Bytes]:
        yield first.global_view
        for number in range(1, count):
            yield prepared(number).global_view

    first, side = prepared(0), preset.view_size
    views = {"global": ([count, 3, side, side], views_sha256(global_views()))}
    if tiles := len(first.tiles):
        views["tiles"] = [tiles, 3, *first.tiles.shape[1:3]], views_sha256(first.tiles)
    image_tokens = count * image_token_count(preset, first.grid, request.family.newline)
    text_tokens = _text_tokens(request, encode or (lambda _: []))  # refuses a prompt without an image
    together = {"images": list(names or ()), "sizes": [list(size) for size in sizes]}
    width, height = sizes[0] if len(set(sizes)) == 1 else (None, None)  # pages of one prompt may differ
    return {
        **({"image": request.name} if names is None else together),
        "model": request.model,
        "preset": request.preset,
        "width": width,
        "height": height,
        "grid": list(first.grid),
        "tiles": tile_count(first.grid),
        "image_tokens": image_tokens,
        "prompt_tokens": text_tokens + image_tokens if encode else None,
        "views": [{"name": name, "shape": shape, "sha256": sha} for name, (shape, sha) in views.items()],
        "notes": notes,
    }


def longest_prompt(request: OcrRequest, size: Size, encode: Encode) -> int:
    """Tokens of the prompt of one image of that size, under its preset or the one that servers have.

    Raises PromptError.
    """
    family = request.family
    presets = [each.resolution for each in (request, replace(request, preset=family.preset))]
    image = max(image_token_count(each, page_grid(*size, each), family.newline) for each in presets)
    return image + _text_tokens(request, encode)


def _text_tokens(request: OcrRequest, encode: Encode) -> int:
    """Count the text's tokens with bos. Raises PromptError."""
    text = build_prompt(request.required.prompt, request.template)
    return len(prompt_layout(encode, text, 0, 0, 0).ids)
