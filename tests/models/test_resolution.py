"""Presets: the published sizes and their names."""

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import preset_named
from dsocr_core.models.resolution import tokens_per_side


@pytest.mark.parametrize(
    ("name", "base", "image", "crop", "view", "side"),
    [
        ("tiny", 512, 512, False, 512, 8), ("small", 640, 640, False, 640, 10),
        ("base", 1024, 1024, False, 1024, 16), ("large", 1280, 1280, False, 1280, 20),
        ("gundam", 1024, 640, True, 1024, 16),
    ],
)  # fmt: skip
def test_presets_have_the_published_sizes(
    name: str, base: int, image: int, crop: bool, view: int, side: int
) -> None:
    preset = preset_named(name)
    assert (preset.base_size, preset.image_size, preset.crop_mode) == (base, image, crop)
    assert preset.view_size == view and tokens_per_side(view) == side
    assert PRESETS[name] is preset


def test_names_in_any_case() -> None:
    assert preset_named("Gundam") is preset_named("GUNDAM") is PRESETS["gundam"]


@pytest.mark.parametrize("name", ["", "huge", "gundam ", "../small"])
def test_unknown_names_are_told_the_known_ones(name: str) -> None:
    with pytest.raises(DsocrError, match="choose one of tiny, small, base, large, gundam"):
        preset_named(name)
    with pytest.raises(ValueError, match="unknown preset"):
        preset_named(name)
