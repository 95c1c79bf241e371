"""The page renderer: seeds, boxes against ink, glyph centres, views, markup, and the shipped samples."""

import hashlib
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

pytest.importorskip("matplotlib", reason="the renderer draws with the fonts that matplotlib bundles")

from data.mini.training.data import LONGEST_TARGET, pages, repeats_ngram, target_ids
from data.mini.training.markup import bins, page_markup, parse_markup
from data.mini.training.page import Block, Canvas, Glyph, Page, wrap
from data.mini.training.render import random_page
from data.mini.training.samples import SAMPLES, write_samples
from data.mini.training.views import cropped, image_tokens, padded, squeezed

SHIPPED = Path(__file__).parents[2] / "data" / "samples"
WHITE = (255, 255, 255)


def digest(page: Page) -> str:
    return hashlib.sha256(page.image.tobytes()).hexdigest()


def test_same_seed_same_bytes_other_seed_other_bytes() -> None:
    first, again, other = (random_page(seed) for seed in ("a", "a", "b"))
    assert digest(first) == digest(again)
    assert (first.blocks, first.glyphs) == (again.blocks, again.glyphs)
    assert digest(first) != digest(other)


@pytest.mark.parametrize("seed", range(12))
def test_every_dark_pixel_lies_in_a_block_and_every_block_is_filled(seed: int) -> None:
    page = random_page(f"ink-{seed}")
    grey = np.asarray(page.image.convert("L")).astype(int)
    ink = np.abs(grey - grey[0, 0]) > 40
    covered = np.zeros_like(ink)
    for x1, y1, x2, y2 in (block.box for block in page.blocks):
        assert 0 <= x1 < x2 <= page.image.width
        assert 0 <= y1 < y2 <= page.image.height
        assert ink[y1:y2, x1:x2].any()
        covered[y1:y2, x1:x2] = True
    assert not (ink & ~covered).any()


def test_text_box_is_the_ink_of_its_lines() -> None:
    canvas = Canvas(400, 200, WHITE)
    canvas.text("text", ["Two lines", "of ink"], 30, 40, "DejaVuSans", 24, 32, (0, 0, 0))
    (block,) = canvas.page().blocks
    rows, columns = np.nonzero(np.asarray(canvas.image.convert("L")) < 255)
    ink = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert np.abs(np.subtract(block.box, ink)).max() <= 1
    assert block.text == "Two lines of ink"


def test_glyph_centres_lie_on_their_letters() -> None:
    canvas = Canvas(400, 100, WHITE)
    canvas.text("text", ["H H"], 20, 30, "DejaVuSansMono", 40, 50, (0, 0, 0))
    page = canvas.page()
    assert [glyph.character for glyph in page.glyphs] == ["H", "H"]
    dark = np.asarray(page.image.convert("L")) < 128
    for glyph in page.glyphs:  # the bar of an H crosses its centre
        assert dark[int(glyph.y) - 3 : int(glyph.y) + 4, int(glyph.x)].any()


def test_wrap_keeps_every_word_and_the_width() -> None:
    text = "a line that has to be broken into several shorter ones"
    lines = wrap(text, "DejaVuSerif", 20, 150)
    assert " ".join(lines) == text
    assert len(lines) > 2
    assert all(len(line.split()) == 1 or len(line) * 6 < 150 for line in lines)


def test_bins_and_markup_are_as_published() -> None:
    blocks = (
        Block("title", (0, 10, 500, 40), "Heading"),
        Block("image", (10, 50, 1000, 99), ""),
        Block("text", (333, 120, 334, 199), "body 1"),
    )
    assert bins(blocks[0], 1000, 200) == (0, 49, 499, 199)
    assert bins(blocks[1], 1000, 200) == (9, 249, 999, 494)
    markup = page_markup(blocks, 1000, 200)
    assert markup == (
        "<|ref|>title<|/ref|><|det|>[[0, 49, 499, 199]]<|/det|>\n# Heading\n\n"
        "<|ref|>image<|/ref|><|det|>[[9, 249, 999, 494]]<|/det|>\n\n"
        "<|ref|>text<|/ref|><|det|>[[332, 599, 333, 994]]<|/det|>\nbody 1"
    )
    boxes, text = parse_markup(markup)
    assert [label for label, _ in boxes] == ["title", "image", "text"]
    assert boxes[2][1] == (332, 599, 333, 994)
    assert text.split() == ["#", "Heading", "body", "1"]


def test_training_pages_can_be_decoded_greedily() -> None:
    for page in itertools.islice(pages("greedy"), 20):
        ids = target_ids(page)
        assert len(ids) <= LONGEST_TARGET
        assert not repeats_ngram(ids)
    assert repeats_ngram([1, 2, 3, 1, 2, 3], 3)
    assert not repeats_ngram([1, 2, 3, 1, 2, 4], 3)


def one_mark(width: int, height: int, x: float, y: float) -> Page:
    image = Image.new("RGB", (width, height), WHITE)
    image.paste((0, 0, 0), (int(x) - 8, int(y) - 8, int(x) + 8, int(y) + 8))
    return Page(image, (Block("text", (0, 0, 1, 1), "!"),), (Glyph("!", x, y),))


def darkest(pixels: np.ndarray) -> tuple[int, int]:
    rows, columns = np.nonzero(pixels[:, :, 0] < 64)
    return int(rows.mean()), int(columns.mean())


def test_views_carry_each_character_to_where_its_ink_went() -> None:
    page = one_mark(900, 600, 700, 150)
    grid = cropped(page, 1024, 3, 2)
    shown = {"squeezed": squeezed(page, 640).whole, "padded": padded(page, 1024).whole, "tile": grid.tiles[2]}
    for name, view in shown.items():
        row, column = darkest(view.pixels)
        (cell,) = np.argwhere(view.characters)
        assert abs(cell[0] - row / 16) < 1.6, name
        assert abs(cell[1] - column / 8) < 2.6, name
        assert view.characters[tuple(cell)] == ord("!") - 32
    assert all(not tile.characters.any() for index, tile in enumerate(grid.tiles) if index != 2)


def test_views_have_the_published_pixels_and_token_counts() -> None:
    page = random_page("views", aspect=1.0)
    small, base, gundam = squeezed(page, 640), padded(page, 1024), cropped(page, 1024, 2, 2)
    rgb = page.image.convert("RGB")
    assert np.array_equal(small.whole.pixels, np.asarray(rgb.resize((640, 640))))
    assert np.array_equal(base.whole.pixels, np.asarray(ImageOps.pad(rgb, (1024, 1024), color=(127,) * 3)))
    stretched = np.asarray(rgb.resize((1280, 1280)))
    assert np.array_equal(gundam.tiles[1].pixels, stretched[:640, 640:])
    assert np.array_equal(gundam.tiles[2].pixels, stretched[640:, :640])
    assert [image_tokens(each) for each in (small, base, gundam)] == [111, 273, 693]


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
    for sample in SAMPLES[:6]:
        drawn, shipped = (io.BytesIO((place / sample.name).read_bytes()) for place in (tmp_path, SHIPPED))
        assert np.array_equal(np.asarray(Image.open(drawn)), np.asarray(Image.open(shipped))), sample.name
