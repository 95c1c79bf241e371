"""B from where another engine left it, and the table of what both sides used."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.settings import Settings
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reading
from dsocr_core.trace.why.reference import read_other
from dsocr_core.trace.why.run import fact_lines
from tests.support.model_inputs import INPUTS

TEXT = "<|ref|>text<|/ref|>a line of the page"


def result(page: str, backend: str = "fast") -> OcrResult:
    request = OcrRequest(Path(page), "gundam", "<image>\nFree OCR.", source=page)
    return OcrResult(backend, request, (8, 8), TEXT, (1, 2), (), "eos", INPUTS, ())


def written(directory: Path, *results: OcrResult) -> str:
    """A run directory of these results."""
    with RunRecorder(Settings(), out=directory, save=False) as recorder:
        for one in results:
            recorder.add(one.request.source, Comparison(one.request, one))
    return str(directory)


def test_a_text_tells_nothing_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "page.mmd"
    file.write_text(TEXT)
    assert read_other(str(file), "page.png", "") == Other("page.mmd", TEXT)


def test_a_result_tells_all(tmp_path: Path) -> None:
    found = read_other(written(tmp_path / "a", result("page.png")), "page.png", "")
    assert (found.text, found.tokens, found.finish, found.inputs) == (TEXT, (1, 2), "eos", INPUTS)
    assert found.quantisation == "none"
    assert read_other(written(tmp_path / "b", result("p", "port")), "p", "").quantisation is None


def test_a_run_directory_or_a_folder_of_texts_is_searched_for_the_page(tmp_path: Path) -> None:
    out = written(tmp_path / "out", result("one.png"), result("two.png", "vendor"))
    assert read_other(out, "two.png", "").name == f"vendor of {out}"
    with pytest.raises(DsocrError, match=r"has no page three\.png"):
        read_other(out, "three.png", "")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "three.mmd").write_text("clean")
    (tmp_path / "texts" / "three_det.mmd").write_text("raw")
    assert read_other(str(tmp_path / "texts"), "three.png", "").text == "raw"
    for page, words in (
        ("four.png", r"has nothing of four\.png"),
        ("three.pdf#3", r"no name says that a text is of three\.pdf#3"),
        ("three.png+2", "no name says"),
    ):
        with pytest.raises(DsocrError, match=words):
            read_other(str(tmp_path / "texts"), page, "")


def test_what_is_no_result_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("[]")
    with pytest.raises(DsocrError, match="not a text"):
        read_other(str(file), "page.png", "")
    with pytest.raises(DsocrError, match="has no run of that name"):
        read_other("no-such-run", "page.png", str(tmp_path / "history"))


def test_facts_are_equal_different_or_not_known() -> None:
    request = OcrRequest(Path("page.png"), "gundam", "<image>\nFree OCR.", template="roles")
    reading = Reading((1,), "a", "length", INPUTS)
    silent = {line.name: line.state for line in fact_lines(request, reading, Other("b", "text"))}
    assert set(silent.values()) == {"not known"}
    other = Other("b", "t", inputs=INPUTS, prompt="<image>\nFree OCR.", finish="eos", quantisation="q8_0")
    lines = {line.name: line for line in fact_lines(request, reading, other)}
    assert lines["grid"].state == lines["n-gram size"].state == "equal"
    assert lines["prompt as read"].a == "<|User|>: <image>\nFree OCR.\n\n<|Assistant|>:"
    assert {lines[name].state for name in ("prompt as read", "quantisation", "stop reason")} == {"differs"}


PRINTED = "a warning\n=====================\nBASE:  torch.Size([1, 256, 1280])\n{}\n=====================\n{}"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("patches", "after"),
    [
        (
            "PATCHES:  torch.Size([6, 100, 1280])",
            "\n===============save results:===============\nimage: 0it\n",
        ),
        ("NO PATCHES", "\n" + "=" * 50 + "\nimage size:  (827, 1169)\nvalid image tokens:  100\n"),
        ("NO PATCHES", ""),
    ],
)
def test_what_infer_printed_is_the_text_of_the_page(
    tmp_path: Path, patches: str, after: str, end: str
) -> None:
    text = "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nA text\n====\nof it"
    file = tmp_path / "captured.txt"
    file.write_bytes((PRINTED.format(patches, text) + after).replace("\n", end).encode("utf-8-sig"))
    assert read_other(str(file), "page.png", str(tmp_path)).text == text
    file.write_bytes(text.replace("\n", end).encode("utf-8-sig"))
    assert read_other(str(file), "page.png", str(tmp_path)).text == text
