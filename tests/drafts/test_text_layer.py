"""A PDF's text layer as a draft: how it is laid out, and what hostile ones cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.drafts.text_layer import markup
from dsocr_core.inputs.decoding import Unreadable
from dsocr_core.inputs.documents import pdf_page_of, render_pdf_page
from dsocr_core.inputs.opener import TextRun, page_text
from dsocr_core.inputs.rendering import MOST_CHARACTERS


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


def test_prose_becomes_paragraphs_and_headings(tmp_path: Path) -> None:
    runs = page_text(pdf(tmp_path / "a.pdf", PAGE), 1)
    assert markup(runs) == (
        "## A title\n\nThe first paragraph goes on over two lines with a hyphenated word.\n\nA second one."
    )


def test_columns_are_not_joined() -> None:
    left = [TextRun(10, 90 - 12 * n, 90, 100 - 12 * n, f"left {n}") for n in range(3)]
    right = [TextRun(110, 90 - 12 * n, 190, 100 - 12 * n, f"right {n}") for n in range(3)]
    assert markup([*left, *right]) == "left 0 left 1 left 2\n\nright 0 right 1 right 2"


def test_runs_of_one_line_are_joined_by_their_gaps() -> None:
    runs = [TextRun(10, 0, 30, 10, "Ver"), TextRun(30, 0, 50, 10, "ified"), TextRun(55, 0, 80, 10, "drafts")]
    assert markup(runs) == "Verified drafts"


@pytest.mark.parametrize("text", ["", "\0\0", "\ufffe", " \n", "\u202e"])
def test_what_shows_nothing_drafts_nothing(text: str) -> None:
    assert markup([TextRun(0, 0, 1, 1, text)] * 3) == ""


def test_numbers_that_are_none_are_survived() -> None:
    nan, most = float("nan"), float("inf")
    assert markup([TextRun(nan, nan, nan, nan, "a"), TextRun(-most, most, most, -most, "b")])


def test_a_layer_of_megabytes_is_cut(tmp_path: Path) -> None:
    lines = drawn(*((0, 1, 0.5, "x" * 1000) for _ in range(3000)))
    runs = page_text(pdf(tmp_path / "long.pdf", lines), 1)
    assert 0 < sum(len(run.text) for run in runs) <= MOST_CHARACTERS


def test_a_page_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no page 2"):
        page_text(pdf(tmp_path / "a.pdf", PAGE), 2)
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 nothing")
    with pytest.raises(Unreadable, match="not a readable PDF"):
        page_text(tmp_path / "b.pdf", 1)


def test_a_drawn_page_knows_its_pdf(tmp_path: Path) -> None:
    file = pdf(tmp_path / "a.pdf", PAGE)
    assert pdf_page_of(render_pdf_page(file, 1, tmp_path / "pages")) == (file, 1)
    assert pdf_page_of(tmp_path / "other.png") is None
