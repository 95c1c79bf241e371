"""A PDF's text layer as a draft: how it is laid out, and what hostile ones cost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dsocr_core.engine.drafts.text_layer import blocks, drafted
from dsocr_core.page.decode_pool import PageText, TextRun, page_text
from dsocr_core.page.decoding import Unreadable
from dsocr_core.page.rendering import MOST_CHARACTERS


def pdf(path: Path, drawn: str, box: str = "0 0 300 200") -> Path:
    """A PDF of one page, which draws that in Helvetica as /F."""
    content = drawn.encode("latin-1")
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]/Contents 5 0 R/Resources<</Font<</F 4 0 R>>>>>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(content), content),
    ]  # fmt: skip
    written = b"%PDF-1.4\n"
    places = []
    for number, each in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj%b endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    path.write_bytes(written + end % (table, len(written)))
    return path


def markup(runs: list[TextRun]) -> str:
    return drafted(PageText(300, 200, runs), grounded=False)


def drawn(*lines: tuple[float, float, float, str]) -> str:
    """(left, bottom, size, text) of each line."""
    return (
        "BT " + " ".join(f"/F {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj" for x, y, size, text in lines) + " ET"
    )


PAGE = drawn(
    (20, 170, 20, "A title"),
    (20, 140, 10, "The first paragraph goes on"),
    (20, 128, 10, "over two lines with a hyphen-"),
    (20, 116, 10, "ated word."),
    (20, 80, 10, "A second one."),
)


def test_runs_of_one_line_are_joined_by_their_gaps() -> None:
    runs = [TextRun(10, 0, 30, 10, "Ver"), TextRun(30, 0, 50, 10, "ified"), TextRun(55, 0, 80, 10, "drafts")]
    assert markup(runs) == "Verified drafts"


@pytest.mark.parametrize("text", ["", "\0\0", "\ufffe", " \n", "\u202e"])
def test_what_shows_nothing_drafts_nothing(text: str) -> None:
    assert markup([TextRun(0, 0, 1, 1, text)] * 3) == ""


def test_cells_in_the_same_columns_become_a_table() -> None:
    cells = [("Item", "Price"), ("2 inner tubes", "18.00"), ("1 chain", "24.50")]
    rows = [
        TextRun(left, 90 - 12 * n, left + 6 * len(text), 100 - 12 * n, text)
        for n, row in enumerate(cells)
        for left, text in zip((10, 150), row, strict=True)
    ]
    before, after = TextRun(10, 120, 90, 130, "Invoice"), TextRun(10, 20, 90, 30, "Total 42.50")
    assert [block[:2] for block in blocks([before, *rows, after])] == [
        ("text", "Invoice"),
        (
            "table",
            "<table><tr><td>Item</td><td>Price</td></tr><tr><td>2 inner tubes</td><td>18.00</td></tr>"
            "<tr><td>1 chain</td><td>24.50</td></tr></table>",
        ),
        ("text", "Total 42.50"),
    ]


def test_columns_that_are_written_line_by_line_are_read_one_after_the_other() -> None:
    rows = [
        TextRun(left, 90 - 12 * n, left + 100, 100 - 12 * n, f"{side} column, words of line {n}")
        for n in range(3)
        for left, side in ((10, "left"), (140, "right"))
    ]
    words = [" ".join(f"{side} column, words of line {n}" for n in range(3)) for side in ("left", "right")]
    assert markup(rows) == "\n\n".join(words)


def test_a_grounded_page_has_each_blocks_label_box_and_mark(tmp_path: Path) -> None:
    below = [TextRun(30, 110 - 30 * n, 240, 120 - 30 * n, f"Words {n}.") for n in range(2)]
    runs = [TextRun(30, 160, 150, 180, "A title"), *below]
    assert drafted(PageText(300, 200, runs), grounded=True) == (
        "<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# A title\n\n"
        "<|ref|>text<|/ref|><|det|>[[100, 400, 799, 450]]<|/det|>\nWords 0.\n\n"
        "<|ref|>text<|/ref|><|det|>[[100, 549, 799, 599]]<|/det|>\nWords 1."
    )
    assert drafted(PageText(300, 200, []), grounded=True) == ""
    assert "[[0, 0, 0, 0]]" in drafted(PageText(0, 0, runs), grounded=True)
    nowhere = [TextRun(float("nan"), float("inf"), -5, 5, "a")]
    assert "[[0, 974, 0, 0]]" in drafted(PageText(300, 200, nowhere), grounded=True)


HOSTILE = {
    "10 MB": drawn(*((0, 1, 0.5, "x" * 1000) for _ in range(10_000))),
    "a million words": drawn(*((n % 300, n % 200, 0.1, "a b c d e f g h i j" * 5) for n in range(10_000))),
    "invisible": f"3 Tr {PAGE}",
    "null": drawn((20, 140, 10, "\0" * 500)),
    "no page's text": drawn((-9999, 9999, 10, "far away")),
    "right to left": drawn(*((280 - 12 * n, 140, 10, "\xe0\xe1\xe2") for n in range(20))),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_layer_costs_bounded_time_and_memory(tmp_path: Path, kind: str) -> None:
    """Whatever it says is a draft; that a draft changes no token, tests/engine/fast shows."""
    began = time.monotonic()
    try:
        layer = page_text(pdf(tmp_path / "hostile.pdf", HOSTILE[kind]), 1)
    except Unreadable:
        layer = PageText(300, 200, [])
    assert sum(len(run.text) for run in layer.runs) <= MOST_CHARACTERS
    assert len(drafted(layer, grounded=True)) <= 2 * MOST_CHARACTERS + 100 * len(layer.runs)
    assert time.monotonic() - began < 60  # seconds on a loaded machine; the opener's own limit ends it else


def test_a_page_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no page 2"):
        page_text(pdf(tmp_path / "a.pdf", PAGE), 2)
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 nothing")
    with pytest.raises(Unreadable, match="not a readable PDF"):
        page_text(tmp_path / "b.pdf", 1)
