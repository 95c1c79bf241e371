"""Output of the vendor's vLLM scripts into the history: no text under a page that it is not of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.page.documents import load_image
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.store import History
from tests.support.flat_tables import flat_tables
from tests.support.paths import SAMPLES
from tests.support.vllm_folders import END_TOKEN, Generated, image_script, pdf_script

NAMES = ("01-letter.png", "02-invoice.png", "09-report-picture.png", "14-release-note.png")
BOX = "<|ref|>{}<|/ref|><|det|>[[100, 50, 900, 300]]<|/det|>\n"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(str(tmp_path / "history")) as opened:
        yield opened


def pages() -> list[Generated]:
    """Sample pages; the third has a picture, the second has not ended."""
    pictures = [load_image(SAMPLES / name).resize((1224, 1584)) for name in NAMES]
    texts = [BOX.format("image" if number == 2 else "text") + name for number, name in enumerate(NAMES)]
    ends = [END_TOKEN, "", END_TOKEN, END_TOKEN]
    return [Generated(picture, text + end) for picture, text, end in zip(pictures, texts, ends, strict=True)]


def imported(history: History, folder: Path) -> tuple[dict[str, str], str, Path]:
    """Texts by page, the run's note, and where its files lie."""
    (found,) = import_paths(history, [folder]).imported
    rows = flat_tables(history, found.run_id)["images"].to_pylist()
    record = history.record(found.run_id)
    place = folder.parent / "history" / "runs" / found.run_id
    return {row["page"]: row["text_raw"] for row in rows}, record.notes or "", place


def test_with_the_pdf_beside_it_each_text_is_under_its_page(history: History, tmp_path: Path) -> None:
    generated, out = pages(), tmp_path / "out"
    assert pdf_script(out, "paper", generated) == [1, 3, 4]
    first, *rest = (page.picture for page in generated)
    first.save(out / "paper.pdf", save_all=True, append_images=rest, resolution=144, quality=95)
    texts, note, place = imported(history, out)
    assert {page: text.rpartition("\n")[2] for page, text in texts.items()} == {
        "paper.pdf#1": NAMES[0], "paper.pdf#3": NAMES[2], "paper.pdf#4": NAMES[3],
    }  # fmt: skip
    assert "3 of 3 texts belong to pages of paper.pdf, which has 4." in note
    # The picture of the third page has the script's number 1, and lies with the third page's text.
    (crop,) = place.rglob("images/0.jpg")
    assert crop.read_bytes() == (out / "images" / "1_0.jpg").read_bytes()
    assert NAMES[2] in (crop.parent.parent / "result.mmd").read_text()


def test_without_the_pdf_no_text_gets_a_page_number(history: History, tmp_path: Path) -> None:
    pdf_script(tmp_path / "out", "paper", pages())
    texts, note, _ = imported(history, tmp_path / "out")
    assert list(texts) == ["paper.pdf, text 1", "paper.pdf, text 2", "paper.pdf, text 3"]
    assert "Which pages of paper.pdf these are is not known: it does not lie in the folder." in note


def test_the_image_script_leaves_a_raw_text_with_boxes(history: History, tmp_path: Path) -> None:
    page = Generated(load_image(SAMPLES / NAMES[0]), BOX.format("text") + "Dear")
    image_script(tmp_path / "letter", page)
    (found,) = import_paths(history, [tmp_path / "letter"]).imported
    tables = flat_tables(history, found.run_id)
    (image,) = tables["images"].to_pylist()
    assert (image["page"], image["text_raw"], image["width"]) == ("letter", page.text, page.picture.width)
    (box,) = tables["boxes"].to_pylist()
    assert (box["label"], box["x1"]) == ("text", int(100 / 999 * page.picture.width))
