"""The vendor's vLLM folders: each text to its page where pages were left out, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from dsocr_core.page.documents import load_image, render_pdf_page
from dsocr_core.runs.texts.by_name import ByName
from dsocr_core.runs.texts.folders import read_folder
from dsocr_core.runs.texts.prediction import PredictionError
from tests.support.paths import SAMPLES
from tests.support.vllm_folders import END_TOKEN, Generated, eval_script, image_script, pdf_script

NAMES = (
    "01-letter.png",
    "02-invoice.png",
    "12-two-columns.png",
    "14-release-note.png",
    "10-grayscale-memo.png",
)
WIDTH, HEIGHT = 1224, 1584
"""Letter paper at the script's 144 dots per inch."""


def markup_of(name: str) -> str:
    """What the model should write on a sample page."""
    page = json.loads((SAMPLES / "ground_truth.json").read_text(encoding="utf-8"))[name]
    sides = (page["width"], page["height"]) * 2
    blocks = []
    for block in page["blocks"]:
        box = [int(value / side * 999) for value, side in zip(block["box"], sides, strict=True)]
        blocks.append(f"<|ref|>{block['label']}<|/ref|><|det|>[{box}]<|/det|>\n{block['text']}")
    return "\n\n".join(blocks)


def paper(name: str) -> Image.Image:
    """A sample page on letter paper."""
    return load_image(SAMPLES / name).resize((WIDTH, HEIGHT))


def form(number: int) -> Generated:
    """A filled form; one differs from the other in a number."""
    page = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(page)
    for line in range(30):
        pen.text(
            (150, 150 + 40 * line), f"Line {line} of the same form for everybody", fill="black", font_size=24
        )
    pen.text((800, 750), str(number), fill="black", font_size=32)
    mark = "<|ref|>text<|/ref|><|det|>[[110, 80, 950, 860]]<|/det|>"
    return Generated(page, f"{mark}\nForm {number}{END_TOKEN}")


def document(folder: Path, pages: Sequence[Generated]) -> list[Path]:
    """The PDF's pages as `compare` renders them."""
    file = folder / "paper.pdf"
    first, *rest = (page.picture for page in pages)
    first.save(file, save_all=True, append_images=rest, resolution=144, quality=95)
    return [render_pdf_page(file, number, folder / "rendered", 150) for number in range(1, len(pages) + 1)]


def placed(folder: Path, rendered: Sequence[Path]) -> list[str]:
    """The text of each page of the PDF, or why there is none."""
    texts = ByName(read_folder(folder))
    found = []
    for number, image in enumerate(rendered, 1):
        try:
            found.append(texts.text_of(f"paper.pdf#{number}", lambda image=image: load_image(image)).text)
        except PredictionError as error:
            found.append(str(error))
    return found


@pytest.fixture(scope="module")
def pages() -> list[Generated]:
    return [Generated(paper(name), markup_of(name) + END_TOKEN) for name in NAMES]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory, pages: list[Generated]) -> list[Path]:
    return document(tmp_path_factory.mktemp("document"), pages)


@pytest.mark.parametrize("dropped", [(), (0,), (4,), (1, 3), (0, 2, 4)])
def test_no_text_of_the_pdf_script_goes_to_another_page(
    tmp_path: Path, pages: list[Generated], rendered: list[Path], dropped: tuple[int, ...]
) -> None:
    generated = [
        Generated(page.picture, page.text.replace(END_TOKEN, "") if number in dropped else page.text)
        for number, page in enumerate(pages)
    ]
    written = pdf_script(tmp_path / "out", "paper", generated)
    assert written == [number + 1 for number in range(5) if number not in dropped]
    for number, text in enumerate(placed(tmp_path / "out", rendered)):
        if number in dropped:
            assert text == (
                f"paper.pdf#{number + 1}: paper_det.mmd has no text of it; unfinished pages are left out"
            )
        else:
            assert text == markup_of(NAMES[number])


def test_a_page_without_end_stays_where_the_script_was_told_to_keep_it(
    tmp_path: Path, pages: list[Generated], rendered: list[Path]
) -> None:
    unfinished = Generated(pages[1].picture, pages[1].text.replace(END_TOKEN, ""))
    pdf_script(tmp_path / "out", "paper", [pages[0], unfinished, *pages[2:]], skip_repeat=False)
    assert placed(tmp_path / "out", rendered) == [markup_of(name) for name in NAMES]


def test_a_form_that_differs_in_a_number_is_another_page(tmp_path: Path) -> None:
    forms = [form(number) for number in (314159, 271828, 161803)]
    rendered = document(tmp_path, forms)
    left_out = Generated(forms[1].picture, forms[1].text.replace(END_TOKEN, ""))
    pdf_script(tmp_path / "out", "paper", [forms[0], left_out, forms[2]])
    first, second, third = placed(tmp_path / "out", rendered)
    assert first.endswith("Form 314159") and third.endswith("Form 161803")
    assert "has no text of it" in second


def test_pages_that_look_alike_and_read_otherwise_are_not_guessed(tmp_path: Path) -> None:
    blank = Image.new("RGB", (WIDTH, HEIGHT), "white")
    twins = [Generated(blank, f"one{END_TOKEN}"), Generated(blank, f"two{END_TOKEN}")]
    rendered = document(tmp_path, twins)
    pdf_script(tmp_path / "out", "paper", twins)
    _, second = placed(tmp_path / "out", rendered)
    assert second == "paper.pdf#2: it may be text 1, 2 of paper_det.mmd: those pages look alike"


def test_without_layouts_no_page_is_guessed(
    tmp_path: Path, pages: list[Generated], rendered: list[Path]
) -> None:
    pdf_script(tmp_path / "out", "paper", pages)
    (tmp_path / "out" / "paper_layouts.pdf").unlink()
    texts = placed(tmp_path / "out", rendered)
    assert texts[0] == (
        "paper.pdf#1: which text of paper_det.mmd is its own cannot be told: it has 5 texts without page "
        "numbers, and paper_layouts.pdf is not there"
    )


def test_layouts_of_another_number_of_pages_place_nothing(
    tmp_path: Path, pages: list[Generated], rendered: list[Path]
) -> None:
    pdf_script(tmp_path / "out", "paper", pages)
    pdf_script(tmp_path / "other", "paper", pages[:3])
    (tmp_path / "other" / "paper_layouts.pdf").replace(tmp_path / "out" / "paper_layouts.pdf")
    assert "paper_layouts.pdf has 3 pages and there are 5 texts" in placed(tmp_path / "out", rendered)[0]


def test_the_only_page_of_the_image_script_is_found_by_its_picture(tmp_path: Path) -> None:
    page = Generated(load_image(SAMPLES / NAMES[0]), markup_of(NAMES[0]))
    image_script(tmp_path / "out", page)
    texts = ByName(read_folder(tmp_path / "out"))
    assert texts.text_of(NAMES[0], lambda: page.picture).text == markup_of(NAMES[0])
    other = load_image(SAMPLES / NAMES[1]).resize(page.picture.size)
    with pytest.raises(PredictionError, match="has no text of that name"):
        texts.text_of(NAMES[1], lambda: other)


def test_the_raw_text_is_taken_where_the_scripts_leave_both(tmp_path: Path) -> None:
    eval_script(tmp_path / "out", ["a.jpg", "b.jpg"], [f"{markup_of(NAMES[0])}{END_TOKEN}", "plain"])
    texts = ByName(read_folder(tmp_path / "out"))  # the files lie beside it: outa_det.md
    found = texts.text_of("a.jpg", _no_picture)
    assert found.has_markup and found.text == markup_of(NAMES[0])
    assert texts.text_of("b.jpg", _no_picture).text == "plain"


def test_of_a_png_the_evaluation_script_leaves_a_text_that_is_called_like_the_picture(tmp_path: Path) -> None:
    eval_script(tmp_path / "out", ["c.png"], [markup_of(NAMES[0])])
    assert (tmp_path / "outc.png").is_file()
    (tmp_path / "outc.png").rename(tmp_path / "out" / "c.png")
    found = ByName(read_folder(tmp_path / "out")).text_of("c.png", _no_picture)
    assert not found.has_markup and found.text.lstrip().startswith("Northwind Library")


def _no_picture() -> Image.Image:
    raise AssertionError("the name is enough")
