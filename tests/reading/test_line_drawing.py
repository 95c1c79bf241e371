"""`geo.jpg`: what is drawn, what is refused, and that nothing of the text runs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dsocr_core.reading.artifacts import write_page
from dsocr_core.reading.line_drawing import LineDrawing, NotADrawing, draw, parse_drawing
from tests.support.results import make_result

FIGURE = {
    "Line": {
        "line": ["(-10, 0) -- (10, 5)", "no line", "(1, 2) -- (3, 4) -- (0, -12)", "(9, 9) -- (8, 8)"],
        "line_type": ["--", "--", "-"],
        "line_endpoint": ["A: (-10, 0)", "B: (10, 5)"],
    }
}


def test_lines_with_a_type_are_read_and_others_left_out_as_published() -> None:
    assert parse_drawing(repr(FIGURE)) == LineDrawing(
        lines=(((-10, 0), (10, 5)), ((1, 2), (0, -12))), endpoints=(("A", (-10, 0)), ("B", (10, 5)))
    )


def test_it_lies_where_matplotlib_draws_it() -> None:
    """Its transform puts (-10, 0) at 152.5 px across and 303 down, (10, 5) at 462.5 and 226."""
    picture = np.asarray(draw(LineDrawing(lines=(((-10, 0), (10, 5)),), endpoints=())).convert("L"))
    assert picture.shape == (600, 600)
    assert picture[303, 152] < 60 and picture[226, 462] < 60
    middle_x, middle_y = (152.5 + 462.5) / 2, (303 + 226) / 2
    assert picture[round(middle_y) - 2 : round(middle_y) + 3, round(middle_x)].min() < 60
    assert picture[303 - 60, 152] > 200 and picture[420, 300] > 200


def test_it_covers_the_pixels_of_matplotlibs_own_drawing() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    lines = (((-10.0, 0.0), (10.0, 5.0)), ((0.0, -14.0), (3.0, 30.0)))
    figure, axes = pyplot.subplots(figsize=(3, 3), dpi=200)
    axes.set_xlim(-15, 15)
    axes.set_ylim(-15, 15)
    for (x0, y0), (x1, y1) in lines:
        axes.plot([x0, x1], [y0, y1], linewidth=0.8, color="k")
        axes.scatter([x0, x1], [y0, y1], s=5, color="k")
    figure.canvas.draw()
    theirs = np.asarray(figure.canvas.buffer_rgba())[..., 0] < 128
    pyplot.close(figure)
    ours = np.asarray(draw(LineDrawing(lines, ())).convert("L")) < 128
    inside = (slice(76, 530), slice(79, 536))
    near = np.zeros_like(ours)
    for down in range(-2, 3):
        for across in range(-2, 3):
            near |= np.roll(ours, (down, across), (0, 1))
    assert theirs[inside].sum() > 900
    assert (theirs & ~near)[inside].sum() == 0, "matplotlib draws where we do not"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the line_type of this figure is unknown", "not a literal"),
        ("__import__('os').mkdir('line_type')", "not a literal"),
        ("{'Line': {'line': [], 'line_type': []}}", "not a dictionary"),
        ("['line_type']", "not a dictionary"),
        ("{'Line': {'line': 3, 'line_type': [], 'line_endpoint': []}}", "not lists"),
        ("{'Line': {'line': [], 'line_type': [], 'line_endpoint': ['A (1, 2)']}}", "not a name and a point"),
        ("{'Line': {'line': [], 'line_type': [], 'line_endpoint': ['A: (1, 2, 3)']}}", "not two numbers"),
        ("{'Line': {'line': [], 'line_type': [], 'line_endpoint': ['A: (1, 1e999)']}}", "out of all bounds"),
        ("[" * 90_000 + "'line_type'", "not a literal"),
        (repr("line_type" * 20_000), "more than 100,000"),
        (repr({"Line": {"line": ["x"] * 3000, "line_type": [], "line_endpoint": []}}), "more than 2000"),
    ],
)
def test_other_texts_are_no_drawing_and_run_nothing(text: str, reason: str) -> None:
    with pytest.raises(NotADrawing, match=reason):
        parse_drawing(text)


def test_a_page_with_a_drawing_has_it_beside_the_others_and_a_mere_mention_has_none(tmp_path: Path) -> None:
    page = Image.new("RGB", (1000, 800), "white")
    write_page(make_result(repr(FIGURE)), [page], tmp_path / "drawn")
    with Image.open(tmp_path / "drawn" / "geo.jpg") as picture:
        assert picture.size == (600, 600)
    write_page(make_result("about line_type"), [page], tmp_path / "mentioned")
    assert not (tmp_path / "mentioned" / "geo.jpg").exists()
    assert (tmp_path / "mentioned" / "result_with_boxes.jpg").exists()
