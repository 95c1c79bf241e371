"""The figures of `test_compress`, computed by hand from the published rules."""

from dataclasses import replace

from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.page.compression import Compression, compression, valid_image_tokens
from tests.support.results import make_result


def test_valid_image_tokens_are_those_worked_out_by_hand() -> None:
    for preset, size, grid, tokens in (
        ("tiny", (1000, 100), (1, 1), 64),
        ("small", (1000, 100), (1, 1), 100),
        ("base", (800, 1000), (1, 1), 204),  # 256 x 0.8 = 204.8
        ("large", (1000, 800), (1, 1), 320),
        ("large", (1000, 999), (1, 1), 399),
        ("gundam", (600, 600), (1, 1), 256),
        ("gundam", (1500, 1000), (3, 2), 170 + 600),
        ("base", (1, 1000), (1, 1), 0),
    ):
        assert valid_image_tokens(size, grid, PRESETS[preset]) == tokens, (preset, size)


def test_figures_of_a_result_are_there_when_they_were_asked_for() -> None:
    result = make_result(image_size=(1000, 800))
    assert compression(result) is None
    figures = compression(replace(result, text_tokens=250))
    assert figures == Compression((1000, 800), 100, 250) and figures.ratio == 2.5
    assert "text tokens 250, compression ratio 2.5" in str(figures)
    assert "not defined" in str(Compression((1, 1000), 0, 5))  # the published code divides by zero here
