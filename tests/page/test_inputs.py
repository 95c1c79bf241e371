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

import numpy as np
import pytest
from PIL import Image

from dsocr_core.models.family import MODELS, family_named
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


# --- at the limits --------------------------------------------------------------------------------


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


def test_a_page_that_comes_out_white_or_was_turned_is_noted(tmp_path: Path) -> None:
    """How every mode is converted is tested where pages are opened."""
    grey = Image.fromarray(published_page(300, 800)).convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert inputs_of("deepseek_ocr2", saved(grey, tmp_path / "page.png"))["notes"] == []
    [note] = inputs_of("deepseek_ocr2", saved(deep, tmp_path / "deep.png"))["notes"]
    assert "come out white" in note
    turned = inputs_of("deepseek_ocr", saved(grey, tmp_path / "turned.jpg", exif=exif))
    assert turned["notes"] == ["turned as its EXIF says"]
    assert (turned["width"], turned["height"]) == (grey.height, grey.width)


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
