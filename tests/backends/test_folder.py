"""`folder:`: texts by name, what has none named, and what is in nobody's page said at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsocr_core.backends.backend import open_backend
from dsocr_core.backends.folder import FolderBackend, read_texts
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs import parse_backend
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.texts import PAGE_END
from dsocr_core.settings import Settings
from tests.support.paths import DATA, SAMPLES

LETTER = SAMPLES / "01-letter.png"
RAW = "<|ref|>text<|/ref|><|det|>[[10, 10, 500, 60]]<|/det|>\nDear Ms. Alwardzy"


def opened(folder: Path) -> FolderBackend:
    backend = open_backend(parse_backend({"spec": f"folder:{folder}", "name": "left"}), Settings())
    assert isinstance(backend, FolderBackend)
    return backend


def read(folder: Path, image: Path = LETTER, source: str = "") -> OcrResult:
    return opened(folder).read(OcrRequest(image, source=source))


def put(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{file.name}.md").write_text(content, encoding="utf-8")
    return folder


def test_a_text_is_told_and_nothing_else_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = put(tmp_path / "out", other="x")
    (folder / "01-letter.md").symlink_to(put(tmp_path, secret="secret") / "secret.md")
    with pytest.raises(DsocrError, match="has no text of that name"):
        read(folder)
    result = read(put(tmp_path / "texts", **{"01-letter": RAW}))
    assert (result.backend, result.text_raw, result.image_size) == ("left", RAW, (827, 1169))
    assert (result.token_ids, result.inputs, result.finish_reason, result.timings) == (None, None, None, ())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *((name, "") for name in ("01-letter", "01-letter.png", "a__b__01-letter")),
        ("a__01-letter", "a/01-letter.png"),
        *((name, "paper.pdf#3") for name in ("paper_pg3_repeat1", "paper.pdf_3", "paper_3", "paper.pdf#3",
                                             "paper_page_0003")),
        ("paper-03", "paper.PDF#3"), ("paper_pg003_repeat1", "a/paper.Pdf#3"), ("fax_page_3", "fax.tif#3"),
        ("Re\u0301sume\u0301_3", "R\xe9sum\xe9.pdf#3"), ("R\xe9sum\xe9", "Re\u0301sume\u0301.png"),
    ],
)  # fmt: skip
def test_pages_are_found_by_the_names_that_programs_give(tmp_path: Path, name: str, source: str) -> None:
    assert read(put(tmp_path, **{name: RAW, "other": "no"}), source=source).text_raw == RAW


def test_a_set_that_has_a_page_0_counts_from_it(tmp_path: Path) -> None:
    for at, form in enumerate(("paper_page_{}", "paper_{}", "paper-{:04}", "paper.pdf_pg{}")):
        folder = put(tmp_path / str(at), **{form.format(number): f"text {number}" for number in (0, 1, 2)})
        texts = [read(folder, source=f"paper.pdf#{number}").text_raw for number in (1, 2, 3)]
        assert texts == ["text 0", "text 1", "text 2"]


def test_a_text_is_read_as_it_is_whatever_system_wrote_it(tmp_path: Path) -> None:
    """An empty file is a page on which nothing was read."""
    (tmp_path / "a.md").write_text("\t" * 3000)
    (tmp_path / "b.md").touch()
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf" + RAW.replace("\n", "\r\n").encode())
    assert [each.text for each in read_texts(str(tmp_path)).predictions] == ["\t" * 3000, "", RAW]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "has no text of a page"),
        (("other",), r"^01-letter.png: .* has no text of that name; .* as in 01-letter\.md$"),
        (("a__01-letter", "b__01-letter"), "has 2 texts of that name"),
    ],
)  # fmt: skip
def test_of_no_text_or_two_none_is_chosen(tmp_path: Path, names: tuple[str, ...], says: str) -> None:
    folder = put(tmp_path, **dict.fromkeys(names, "x"))
    with pytest.raises(DsocrError, match=says):
        opened(folder).check()
        read(folder)
    if len(names) == 2:
        assert read(folder, source="b/01-letter.png").text_raw == "x"
    with pytest.raises(DsocrError, match="there is no such folder"):
        opened(tmp_path / "gone").check()


def test_a_file_with_the_pages_of_a_pdf_is_of_no_page(tmp_path: Path) -> None:
    """The vendor's script leaves pages out of it and does not say which."""
    text = f"one{PAGE_END}two{PAGE_END}".replace("\n", "\r\n")
    (tmp_path / "paper_det.mmd").write_bytes(b"\xef\xbb\xbf" + text.encode())
    with pytest.raises(DsocrError, match=r"paper_det\.mmd: has several pages; write one file a page"):
        read(tmp_path, source="paper.pdf#1")
    assert read(put(tmp_path, paper_2=RAW), source="paper.pdf#2").text_raw == RAW


@pytest.mark.parametrize(
    ("texts", "pages", "known"),
    [
        (["scan"], ["scan.png", "scan.jpg", "other.png"], []),
        (["scan.png", "scan.jpg"], ["scan.png", "scan.jpg"], ["scan.png", "scan.jpg"]),
        (["1"], ["a/1.png", "b/1.png"], []),
        (["1"], ["1.png", "b/1.png"], ["1.png"]),
        (["a__1", "b__1"], ["a/1.png", "b/1.png"], ["a/1.png", "b/1.png"]),
        (["a__1"], ["a/1.png", "b/1.png"], ["a/1.png"]),
        (["doc"], ["doc.png", "doc.pdf#1"], ["doc.png"]),
        (["doc", "doc_1"], ["doc.png", "doc.pdf#1"], ["doc.png", "doc.pdf#1"]),
        (["paper_1"], ["a/paper.pdf#1", "b/paper.pdf#1"], []),
    ],
)
def test_a_text_that_the_names_of_several_pages_lead_to_is_of_none(
    tmp_path: Path, texts: list[str], pages: list[str], known: list[str]
) -> None:
    """Each page that gets none says why."""
    backend = opened(put(tmp_path / "texts", **dict.fromkeys(texts, RAW)))
    backend.expect(pages)
    errors = {}
    for page in pages:
        try:
            backend.read(OcrRequest(LETTER, source=page))
        except DsocrError as error:
            errors[page] = str(error)
    assert [page for page in pages if page not in errors] == known
    says = "not known whether .* is its text or that of .*; name one for each|has no text of that name"
    assert all(re.search(says, error) for error in errors.values())
    assert known or "not known whether" in "".join(errors.values())


def test_a_run_of_ours_is_read_and_of_two_backends_one_is_named() -> None:
    outcomes = set()
    for file in (DATA / "history_seed" / "runs").glob("*/run.json"):
        target = str(file.parent)
        try:
            outcomes.add(f"{len(read_texts(target).predictions) > 0}")
        except DsocrError as error:
            if match := re.search(r"name one, like .*#(\w+)$", str(error)):
                outcomes.add("named")
                assert any(each.has_markup for each in read_texts(f"{target}#{match[1]}").predictions)
            else:  # a measurement
                assert str(error).endswith("has no text of a page"), str(error)
    assert outcomes == {"True", "named"}
