"""What a model gets of a page, against the published code and against Pillow and torch.

published_inputs.json holds what the published code of the three models gave, run with Pillow 13 and its
`generate` replaced by a record of the arguments: `grids` of the sizes of `drawn_sizes`, columns and rows in
base 36; hashes of `published_page`.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from dsocr_core.models.family import MODELS, ModelSpec, family_named
from dsocr_core.models.resolution import Preset
from dsocr_core.page.documents import DocumentError
from dsocr_core.page.inputs import prompt_inputs
from dsocr_core.page.preprocess import prepare, views_sha256
from dsocr_core.page.prompt import PromptError
from dsocr_core.page.tiling import page_grid
from dsocr_core.settings import Settings
from tests.support.remote_code import published_page

PUBLISHED = json.loads((Path(__file__).parent / "published_inputs.json").read_text(encoding="utf-8"))
PAGES = [(name, page) for name, facts in PUBLISHED.items() for page in facts["pages"]]
models = pytest.mark.parametrize("model", PUBLISHED)


def drawn_sizes() -> list[tuple[int, int]]:
    draw = random.Random(36).random
    return [(1 + int(4000 * draw() ** 2), 1 + int(4000 * draw() ** 2)) for _ in range(2000)]


def settings_of(model: str, **others: Any) -> Settings:
    """Settings for a model of which there is no checkpoint."""
    settings = Settings(checkpoint=model, **others)
    vars(settings)["family"] = family_named(model)  # in place of what a config.json says
    return settings


def inputs_of(model: str, *pages: Path, preset: str = "auto", **others: Any) -> dict[str, Any]:
    settings = settings_of(model, preset=preset, **others)
    return prompt_inputs(settings.request(pages[0], more=pages[1:] or None), None, settings.max_pixels)


def saved(image: Image.Image, file: Path, **how: Any) -> Path:
    image.save(file, **how)
    return file


# --- what the published code gave -----------------------------------------------------------------


@models
def test_the_grids_of_2000_sizes_are_the_published_ones(model: str) -> None:
    row, digits = MODELS[model], iter(PUBLISHED[model]["grids"])
    for size, columns, rows in zip(drawn_sizes(), digits, digits, strict=True):
        assert page_grid(*size, row.presets[row.preset]) == (int(columns, 36), int(rows, 36)), size


@pytest.mark.parametrize(("model", "page"), PAGES, ids=[f"{m} {p['preset']} {p['size']}" for m, p in PAGES])
def test_counts_and_views_are_the_published_ones(model: str, page: dict[str, Any], tmp_path: Path) -> None:
    file = saved(Image.fromarray(published_page(*page["size"])), tmp_path / "page.png")
    found = inputs_of(model, file, preset=page["preset"])
    assert [found["width"], found["height"]] == page["size"]
    assert (found["grid"], found["image_tokens"]) == (page["grid"], page["image_tokens"])
    hashes = {view["name"]: view["sha256"] for view in found["views"]}
    assert hashes == {name: page[name] for name in ("global", "tiles") if page[name]}
    assert found["tiles"] == (found["views"][1]["shape"][0] if page["tiles"] else 0)


def test_pages_of_one_prompt_are_the_published_ones(tmp_path: Path) -> None:
    together = PUBLISHED["unlimited_ocr"]["together"]
    pictures = [Image.fromarray(published_page(*size)) for size in together["sizes"]]
    files = [saved(picture, tmp_path / f"{i}.png") for i, picture in enumerate(pictures)]
    found = inputs_of("unlimited_ocr", *files)
    assert found["image_tokens"] == 273 * 3 and found["prompt_tokens"] is None and found["grid"] == [1, 1]
    assert (found["width"], found["height"]) == (None, None)
    (view,) = found["views"]
    assert view["shape"] == [3, 3, 1024, 1024]
    for side, published in together["image_size"].items():
        preset = Preset("", int(side), int(side), crop_mode=False, max_tiles=32)
        views = views_sha256(prepare(picture, preset).global_view for picture in pictures)
        assert views == published["global"], side
        if side == "1024":
            assert (view["sha256"], found["image_tokens"]) == (views, published["image_tokens"])


# --- against Pillow and torch ---------------------------------------------------------------------

LARGEST = {"deepseek_ocr": (640, 9), "deepseek_ocr2": (768, 6), "unlimited_ocr": (640, 32)}
"""Side of a tile, and most tiles."""


def reference(image: Image.Image, model: str, preset: Preset) -> dict[str, list[Any]]:
    """Shapes and hashes of the views, spelled anew: Pillow's own resize and pad, torch's bf16."""
    side, most = LARGEST[model]
    views = {}
    if preset.crop_mode:
        whole = ImageOps.pad(image, (preset.base_size,) * 2, color=(127, 127, 127))
    else:
        square = (preset.image_size,) * 2
        squeezed = image.resize(square) if preset.image_size <= side else image
        whole = ImageOps.pad(squeezed, square, color=(127, 127, 127))
    views["global"] = hashed([whole])
    if preset.crop_mode and max(image.size) > side:
        columns, rows = closest(*image.size, side, most)
        large = image.resize((columns * side, rows * side))
        corners = [(x * side, y * side) for y in range(rows) for x in range(columns)]
        views["tiles"] = hashed([large.crop((x, y, x + side, y + side)) for x, y in corners])
    return views


def closest(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """The grid whose ratio is closest; of equally close ones the largest of which the page fills half."""
    grids = [(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if 2 <= i * j <= most]
    gap = min(abs(width / height - i / j) for i, j in grids)
    ties = sorted((grid for grid in grids if abs(width / height - grid[0] / grid[1]) == gap), key=np.prod)
    filled = [grid for grid in ties if width * height > 0.5 * side * side * grid[0] * grid[1]]
    return [ties[0], *filled][-1]


def hashed(pictures: list[Image.Image]) -> list[Any]:
    pixels = torch.from_numpy(np.stack([np.array(picture) for picture in pictures])).permute(0, 3, 1, 2)
    values = ((pixels.float() / 255 - 0.5) / 0.5).to(torch.bfloat16).contiguous()
    return [list(values.shape), hashlib.sha256(values.view(torch.int16).numpy().tobytes()).hexdigest()]


def check(image: Image.Image, file: Path, row: ModelSpec, preset: str) -> None:
    found = inputs_of(row.name, file, preset=preset)
    views = {view["name"]: [view["shape"], view["sha256"]] for view in found["views"]}
    assert views == reference(image, row.name, row.presets[preset]), (image.size, preset)


def drawn_page(size: tuple[int, int], file: Path) -> Image.Image:
    x, y = np.arange(size[0], dtype=np.uint32), np.arange(size[1], dtype=np.uint32)[:, None]
    pixels = np.stack([x * 3 + y * 5 + x * y // 50 + 80 * k for k in range(3)], -1).astype(np.uint8)
    image = Image.fromarray(pixels)
    saved(image, file, compress_level=0)
    return image


@models
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [6, pytest.param(2000, marks=pytest.mark.slow)])
def test_views_are_those_of_pillow_and_torch(model: str, count: int, tmp_path: Path) -> None:
    draw, row, file = random.Random(f"{model} {count}"), MODELS[model], tmp_path / "page.png"
    presets = [row.preset] * 4 + list(row.presets)
    for number in range(count):
        size = tuple(int(2 ** draw.uniform(0, 10 if count < 100 else 11.5)) for _ in range(2))
        preset = presets[number % len(presets)]
        check(drawn_page(size, file), file, row, preset)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("height", "above", "below"),
    # 1000 wide becomes 1024; what is left of 1024 lines: 683 (r % 4 == 3), 681 (1), 682 and 684.
    [(333, 342, 341), (335, 340, 341), (334, 341, 341), (332, 342, 342)],
)
def test_an_odd_grey_line_lies_where_half_rounds_to_even(height: int, above: int, below: int) -> None:
    view = prepare(Image.new("RGB", (1000, height)), MODELS["deepseek_ocr2"].presets["default"]).global_view
    lines = np.flatnonzero((view == 0).all((1, 2)))
    assert (lines[0], 1024 - 1 - lines[-1]) == (above, below)


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


def test_a_page_that_comes_out_white_is_noted(tmp_path: Path) -> None:
    """As Pillow cuts 16 bits; how every mode is converted is tested where pages are opened."""
    grey = drawn_page((900, 500), tmp_path / "drawn.png").convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    for image, white in ((grey, False), (deep, True)):
        file, row = saved(image, tmp_path / "page.png"), MODELS["deepseek_ocr2"]
        check(Image.open(file).convert("RGB"), file, row, "default")
        assert ("come out white" in " ".join(inputs_of(row.name, file)["notes"])) is white


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_page_is_turned_as_its_exif_says_and_a_note_says_so(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = saved(Image.fromarray(published_page(300, 800)), tmp_path / "page.jpg", exif=exif)
    check(ImageOps.exif_transpose(Image.open(file)).convert("RGB"), file, MODELS["deepseek_ocr"], "gundam")
    seen = inputs_of("deepseek_ocr", file)
    assert (seen["width"], seen["height"]) == ((800, 300) if orientation >= 5 else (300, 800))
    assert ("turned as its EXIF says" in seen["notes"]) is (orientation > 1)


# --- counts and words -----------------------------------------------------------------------------


def test_a_tokenizer_counts_the_text(tmp_path: Path) -> None:
    file = saved(Image.new("RGB", (30, 20)), tmp_path / "page.png")
    settings = settings_of("deepseek_ocr", prompt="ab<image>cde", preset="base")
    seen = prompt_inputs(settings.request(file), lambda text: [7] * len(text), settings.max_pixels)
    assert (seen["image_tokens"], seen["prompt_tokens"]) == (273, 1 + 2 + 273 + 3)
    with pytest.raises(PromptError, match="exactly one <image>"):
        inputs_of("deepseek_ocr", file, prompt="pages")  # the name of another model's prompt


def test_a_file_that_is_no_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(b"no image")
    with pytest.raises(DocumentError, match="not an image"):
        inputs_of("deepseek_ocr", tmp_path / "page.png")
