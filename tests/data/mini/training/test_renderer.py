"""The page renderer: seeds, boxes against ink, glyph centres, grids, targets, views, markup, the samples."""

import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

pytest.importorskip("matplotlib", reason="the renderer draws with the fonts that matplotlib bundles")
pytest.importorskip("font_roboto", reason="the renderer draws with Roboto")
pytest.importorskip("font_source_serif_pro", reason="the renderer draws with Source Serif")

from data.mini.training.fonts import face
from data.mini.training.markup import bins, page_markup, page_text, parse_markup
from data.mini.training.page import Block, Box, Canvas, Glyphs, Grid, Page, Type
from data.mini.training.render import random_page
from data.mini.training.samples import read_samples, write_samples
from data.mini.training.views import BASE, GUNDAM, SMALL, Mode, cropped, padded, squeezed
from tests.support.paths import SAMPLES as SHIPPED

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
LABELS = {"title", "text", "image", "image_caption", "table", "table_caption"}


def pages(mode: Mode, count: int) -> Iterator[Page]:
    return (random_page(f"test-{index}", mode) for index in range(count))


def digest(page: Page) -> str:
    return hashlib.sha256(page.image.tobytes()).hexdigest()


def type_of(name: str, size_px: int) -> Type:
    return Type(face(name, size_px), round(1.3 * size_px), BLACK)


def ink_box(image: Image.Image, lightest: int = 200) -> Box:
    rows, columns = np.nonzero(np.asarray(image.convert("L")) < lightest)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def test_same_seed_same_bytes_other_seed_other_bytes() -> None:
    for mode in (SMALL, BASE):
        first, again, other = (random_page(seed, mode) for seed in ("a", "a", "b"))
        assert digest(first) == digest(again)
        assert first.blocks == again.blocks
        for field in ("codes", "x", "y"):
            assert np.array_equal(getattr(first.glyphs, field), getattr(again.glyphs, field))
        assert digest(first) != digest(other)


def draw_everything(canvas: Canvas, label: str) -> None:
    style = type_of("SourceSerifPro-It", 24)
    if label == "text":
        canvas.text(
            "text", ["Two fjords, justified", "to jagged ink"], 60, 80, style, 330, "justified", indent=20
        )
    elif label == "list":
        canvas.items([("-", ["A dot", "and more"]), ("-", ["gypsy"])], 60, 80, style, 30, dots=True)
    elif label == "numbers":
        canvas.items([("9.", ["Nine"]), ("10.", ["ten"])], 60, 80, style, 45)
    else:
        grid = Grid("head", 8, 2, (90, 120), 40, type_of("Roboto-Bold", 20), None, ("left", "right"))
        canvas.table([["Word", "Price"], ["tea", "4.50"]], 60, 80, style, grid)


@pytest.mark.parametrize("label", ["text", "list", "numbers", "table"])
@pytest.mark.parametrize("skew_degrees", [0.0, 1.5, -1.2])
def test_box_is_tight_about_the_ink(label: str, skew_degrees: float) -> None:
    canvas = Canvas(460, 300, WHITE)
    draw_everything(canvas, label)
    page = canvas.page(skew_degrees)
    (block,) = page.blocks
    allowed = 2.0 if skew_degrees == 0 else 0.01 * page.image.width
    assert np.abs(np.subtract(block.box, ink_box(page.image))).max() <= allowed


def printed(block: Block) -> str:
    """The characters that stand on paper for a block."""
    return re.sub(r"</?t(?:able|r|d)>|\s", "", block.text)


@pytest.mark.parametrize("mode", [SMALL, BASE, GUNDAM[2]], ids=lambda mode: mode.name)
def test_blocks_are_what_is_printed(mode: Mode) -> None:
    labels = set()
    for page in pages(mode, 25):
        assert page.blocks
        glyphs = bytes(page.glyphs.codes).decode("ascii")
        assert glyphs == "".join(printed(block) for block in page.blocks)
        for block in page.blocks:
            labels.add(block.label)
            x1, y1, x2, y2 = block.box
            assert 0 <= x1 < x2 <= page.image.width and 0 <= y1 < y2 <= page.image.height
            assert block.text.isascii() and block.text == block.text.strip() and "  " not in block.text
            assert bool(block.text) == (block.label != "image")
            assert ("\n" not in block.text) or block.label == "text"
    assert labels == LABELS


def test_bins_and_markup_are_as_published() -> None:
    blocks = (
        Block("title", (0, 10, 500, 40), "Heading"),
        Block("image", (10, 50, 1000, 99), ""),
        Block("text", (333, 120, 334, 199), "body 1"),
        Block("table", (0, 0, 1000, 200), "<table><tr><td>a</td></tr></table>"),
    )
    assert bins(blocks[0], 1000, 200) == (0, 49, 499, 199)
    assert bins(blocks[1], 1000, 200) == (9, 249, 999, 494)
    markup = page_markup(blocks, 1000, 200)
    assert markup == (
        "<|ref|>title<|/ref|><|det|>[[0, 49, 499, 199]]<|/det|>\n# Heading\n\n"
        "<|ref|>image<|/ref|><|det|>[[9, 249, 999, 494]]<|/det|>\n\n"
        "<|ref|>text<|/ref|><|det|>[[332, 599, 333, 994]]<|/det|>\nbody 1\n\n"
        "<|ref|>table<|/ref|><|det|>[[0, 0, 999, 999]]<|/det|>\n<table><tr><td>a</td></tr></table>"
    )
    assert page_text(blocks) == "Heading\n\nbody 1\n\n<table><tr><td>a</td></tr></table>"
    boxes, text = parse_markup(markup)
    assert [label for label, _ in boxes] == ["title", "image", "text", "table"]
    assert boxes[2][1] == (332, 599, 333, 994)
    assert text.split() == ["#", "Heading", "body", "1", "<table><tr><td>a</td></tr></table>"]


def one_mark(width: int, height: int, x: float, y: float) -> Page:
    image = Image.new("RGB", (width, height), WHITE)
    image.paste(BLACK, (int(x) - 8, int(y) - 8, int(x) + 8, int(y) + 8))
    glyphs = Glyphs(np.array([ord("!")], np.uint8), np.array([x], np.float32), np.array([y], np.float32))
    return Page(image, (Block("text", (0, 0, 1, 1), "!"),), glyphs)


def darkest(pixels: NDArray[np.uint8]) -> tuple[int, int]:
    rows, columns = np.nonzero(pixels[:, :, 0] < 64)
    return int(rows.mean()), int(columns.mean())


def test_views_carry_each_character_to_where_its_ink_went() -> None:
    page = one_mark(900, 600, 700, 150)
    grid = cropped(page, 1024, 3, 2)
    assert grid.local is not None
    shown = {"squeezed": squeezed(page, 640).whole, "padded": padded(page, 1024).whole, "local": grid.local}
    for name, view in shown.items():
        row, column = darkest(view.pixels)
        (cell,) = np.argwhere(view.characters)
        assert abs(cell[0] - row / 16) < 1.6, name
        assert abs(cell[1] - column / 8) < 2.6, name
        assert view.characters[tuple(cell)] == ord("!") - 32


def test_views_have_a_boxs_numbers_where_its_ink_ends() -> None:
    """A black block on a white page: the tokens of the first and last dark pixels, the answer's numbers."""
    image = Image.new("RGB", (900, 600), WHITE)
    box = (37, 211, 640, 299)
    image.paste(BLACK, box)
    none = np.zeros(0)
    glyphs = Glyphs(none.astype(np.uint8), none.astype(np.float32), none.astype(np.float32))
    page = Page(image, (Block("image", box, ""),), glyphs)
    numbers = (41, 351, 710, 497)  # of 0..999, from 37 of 900, 211 of 600, 640 of 900, 299 of 600
    shown = {"squeezed": squeezed(page, 640), "padded": padded(page, 1024), "grid": cropped(page, 1024, 3, 2)}
    for name, views in shown.items():
        x1, y1, x2, y2 = ink_box(Image.fromarray(views.whole.pixels), lightest=100)
        left, top, right, bottom = x1 // 64, y1 // 64, (x2 - 1) // 64, (y2 - 1) // 64
        rows, columns = range(top, bottom + 1), range(left, right + 1)
        runs = (
            {(row, left) for row in rows},
            {(top, column) for column in columns},
            {(row, right) for row in rows},
            {(bottom, column) for column in columns},
        )
        for edge, run, number in zip(views.places, runs, numbers, strict=True):
            assert set(map(tuple, np.argwhere(edge).tolist())) == run, name
            assert set(edge[edge > 0].tolist()) == {number + 1}, name


def test_shipped_samples_cover_the_kinds_of_page() -> None:
    truth = json.loads((SHIPPED / "ground_truth.json").read_text())
    assert len(truth) >= 12
    opened = {name: Image.open(SHIPPED / name) for name in truth}
    upright = {name: ImageOps.exif_transpose(image).size for name, image in opened.items()}
    for name, entry in truth.items():
        assert upright[name] == (entry["width"], entry["height"]), name
        for block in entry["blocks"]:
            x1, y1, x2, y2 = block["box"]
            assert 0 <= x1 < x2 <= entry["width"] and 0 <= y1 < y2 <= entry["height"], name
            assert bool(block["text"]) == (block["label"] != "image"), name
    ratios = [width / height for width, height in upright.values()]
    assert min(ratios) < 0.5 and max(ratios) > 2 and 1.0 in ratios
    assert any(max(size) <= 640 for size in upright.values())
    assert (1700, 2200) in upright.values()
    rotated = [name for name, image in opened.items() if image.getexif().get(0x0112, 1) != 1]
    assert rotated and all(name.endswith(".jpg") for name in rotated)
    assert {"L", "RGBA", "RGB"} <= {image.mode for image in opened.values()}
    assert any(block["label"] == "image" for entry in truth.values() for block in entry["blocks"])
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 3 * 2**20


def test_samples_are_drawn_anew_as_shipped(tmp_path: Path) -> None:
    write_samples(tmp_path)
    assert (tmp_path / "ground_truth.json").read_text() == (SHIPPED / "ground_truth.json").read_text()
    for sample in read_samples()[:6]:
        drawn, shipped = (io.BytesIO((place / sample.name).read_bytes()) for place in (tmp_path, SHIPPED))
        assert np.array_equal(np.asarray(Image.open(drawn)), np.asarray(Image.open(shipped))), sample.name
