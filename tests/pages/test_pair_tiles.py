"""The tiles that Compare draws: their tokens, their corners, and where both sides differ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsocr_core.models.family import FAMILIES
from dsocr_core.page.tiling import image_token_count, page_grid
from dsocr_core.reading.records import OcrRequest
from pages.widgets.pair.tiles import layout_html, layout_of, tile_table


def request(model: str, preset: str, more: int = 0) -> OcrRequest:
    return OcrRequest(Path("page.png"), preset, model=model, more=(Path("next.png"),) * more)


def test_the_parts_of_a_page_are_as_worked_out_by_hand() -> None:
    """1301 x 1000 px: of at most 6 tiles, and of at most 9, 3 / 2 is the ratio closest to 1.301."""
    first = layout_of(request("deepseek_ocr", "gundam"), (1301, 1000))
    second = layout_of(request("deepseek_ocr2", "default"), (1301, 1000))
    rows = tile_table({"A": first, "B": second}).to_dict("split")["data"]
    assert rows[0] == ["A", "tile 1", 100, "0, 0, 434, 500"]
    assert rows[4] == ["A", "tile 5", 100, "434, 500, 867, 1000"]
    assert rows[6:10] == [
        ["A", "row ends of the tiles", 20, ""], ["A", "global view", 256, "0, 0, 1301, 1000"],
        ["A", "row ends of the global view", 16, ""], ["A", "separator", 1, ""],
    ]  # fmt: skip
    assert rows[10:] == [
        ["B", "tile 1", 144, "0, 0, 434, 500"], ["B", "tile 2", 144, "434, 0, 867, 500"],
        ["B", "tile 3", 144, "867, 0, 1301, 500"], ["B", "tile 4", 144, "0, 500, 434, 1000"],
        ["B", "tile 5", 144, "434, 500, 867, 1000"], ["B", "tile 6", 144, "867, 500, 1301, 1000"],
        ["B", "global view", 256, "0, 0, 1301, 1000"], ["B", "separator", 1, ""],
    ]  # fmt: skip


@pytest.mark.parametrize("model", FAMILIES)
def test_the_parts_are_all_tokens_of_the_image(model: str) -> None:
    row = FAMILIES[model]
    for name, preset in row.presets.items():
        for size in ((1, 1), (700, 1600), (5000, 90)):
            layout = layout_of(request(model, name), size)
            expected = image_token_count(preset, page_grid(*size, preset), row.newline)
            assert sum(part.tokens for part in layout.parts) == expected
            assert f"{expected:,} image tokens" in layout.words


def test_a_picture_has_a_cell_a_tile_and_words_where_there_is_room() -> None:
    html = layout_html(layout_of(request("unlimited_ocr", "gundam"), (60, 4000)), "/media/1.jpg")
    assert html.count("<i ") == 32 and "<b>32</b>" not in html and "repeat(32,1fr)" in html
    roomy = layout_html(layout_of(request("deepseek_ocr", "gundam"), (900, 1200)), "/media/1.jpg")
    assert re.findall(r"<b>(\d+)</b><small>(\d+)</small>", roomy) == [(str(n), "100") for n in range(1, 7)]
    whole = layout_html(layout_of(request("deepseek_ocr", "small"), (900, 1200)), "/media/1.jpg")
    assert "dsocr-tiles-page" not in whole and "background-size:100% 100%" in whole


def test_pages_of_one_prompt_are_said_to_be_several() -> None:
    assert "one of 3 images in one prompt" in layout_of(request("unlimited_ocr", "base", 2), (9, 9)).words
