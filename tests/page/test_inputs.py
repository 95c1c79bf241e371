"""What a model gets of a page, against the published code.

published_inputs.json holds what the published code of the three models gave, run with Pillow 13 and its
`generate` replaced by a record of the arguments: `grids` of the sizes of `drawn_sizes`, columns and rows in
base 36; hashes of `published_page`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from dsocr_core.models.family import MODELS
from dsocr_core.models.resolution import Preset
from dsocr_core.page.preprocess import prepare, stacked, tensor_sha256
from dsocr_core.page.resizing import padded_area
from dsocr_core.page.tiling import image_token_count, page_grid
from tests.published.remote_code import published_page

PUBLISHED = json.loads((Path(__file__).parent / "published_inputs.json").read_text(encoding="utf-8"))
PAGES = [(name, page) for name, facts in PUBLISHED.items() for page in facts["pages"]]
models = pytest.mark.parametrize("model", PUBLISHED)


def drawn_sizes() -> list[tuple[int, int]]:
    draw = random.Random(36).random
    return [(1 + int(4000 * draw() ** 2), 1 + int(4000 * draw() ** 2)) for _ in range(2000)]


@models
def test_the_grids_of_2000_sizes_are_the_published_ones(model: str) -> None:
    row, digits = MODELS[model], iter(PUBLISHED[model]["grids"])
    for size, columns, rows in zip(drawn_sizes(), digits, digits, strict=True):
        assert page_grid(*size, row.presets[row.preset]) == (int(columns, 36), int(rows, 36)), size


@pytest.mark.parametrize(("model", "page"), PAGES, ids=[f"{m} {p['preset']} {p['size']}" for m, p in PAGES])
def test_counts_and_views_are_the_published_ones(model: str, page: dict[str, Any]) -> None:
    row = MODELS[model]
    preset = row.presets[page["preset"]]
    found = prepare(Image.fromarray(published_page(*page["size"])), preset)
    tokens = image_token_count(preset, found.grid, row.newline)
    assert ([*found.grid], tokens) == (page["grid"], page["image_tokens"])
    hashes = {"global": tensor_sha256(found.global_view), "tiles": tensor_sha256(found.tiles)}
    assert all(hashes[name] == page[name] for name in ("global", "tiles") if page[name])
    assert bool(len(found.tiles)) == bool(page["tiles"])


def test_pages_of_one_prompt_are_the_published_ones() -> None:
    together = PUBLISHED["unlimited_ocr"]["together"]
    pictures = [Image.fromarray(published_page(*size)) for size in together["sizes"]]
    for side, published in together["image_size"].items():
        preset = Preset("", int(side), int(side), crop_mode=False, max_tiles=32)
        found = stacked([prepare(picture, preset) for picture in pictures])
        assert tensor_sha256(found.global_view) == published["global"], side
        assert published["image_tokens"] == 3 * image_token_count(preset, found.grid), side


@pytest.mark.parametrize(
    ("size", "preset", "grey"),
    [
        ((1, 2048), "base", True), ((1, 2047), "base", False), ((1, 2048), "large", False),
        ((1, 5000), "gundam", True), ((5000, 1), "gundam", True),
        ((1, 5000), "small", False),  # squeezed to a square, not padded
    ],
)  # fmt: skip
def test_a_page_whose_side_rounds_to_no_pixel_is_read_as_grey(
    size: tuple[int, int], preset: str, grey: bool
) -> None:
    """As Pillow's `pad` does it for the published code, whose tiles still show the page."""
    page = prepare(Image.new("RGB", size, (255, 0, 0)), MODELS["deepseek_ocr"].presets[preset])
    assert page.image_size == size and bool((page.global_view == 127).all()) is grey
    assert len(page.tiles) == 9 * (preset == "gundam") and (page.tiles == (255, 0, 0)).all()


def test_a_thousand_paddings_are_pillows_own() -> None:
    """Sizes of no pixel have no area. Windows and weights are held to Pillow by tests/engine."""
    sizes = random.Random(24)
    for _ in range(1000):
        before, side = (sizes.randint(1, 120), sizes.randint(1, 120)), sizes.randint(1, 90)
        (width, height), (left, top) = padded_area(before, side)
        area = (left, top, left + width, top + height) if width and height else None
        assert ImageOps.pad(Image.new("L", before, 255), (side, side)).getbbox() == area, (before, side)
