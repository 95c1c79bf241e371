"""B from where another engine left it, and the table of what both sides used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.artifacts import RESULT
from dsocr_core.records import OcrRequest, OcrResult, to_jsonable
from dsocr_core.why.match import Other
from dsocr_core.why.reader import Reading
from dsocr_core.why.reference import read_other
from dsocr_core.why.run import fact_lines
from tests.support.model_inputs import INPUTS

TEXT = "<|ref|>text<|/ref|>a line of the page"


def result(page: str, backend: str = "fast") -> OcrResult:
    request = OcrRequest(Path(page), "gundam", "<image>\nFree OCR.", source=page)
    return OcrResult(backend, request, (8, 8), TEXT, (1, 2), (), "eos", INPUTS, ())


def written(directory: Path, one: OcrResult) -> Path:
    directory.mkdir(parents=True)
    (directory / RESULT).write_text(json.dumps(to_jsonable(one)))
    return directory / RESULT


def test_a_text_tells_nothing_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "page.mmd"
    file.write_text(TEXT)
    assert read_other(str(file), "page.png", "") == Other("page.mmd", TEXT)


def test_a_result_tells_all(tmp_path: Path) -> None:
    file = written(tmp_path / "a", result("page.png"))
    found = read_other(str(file), "page.png", "")
    assert (found.text, found.tokens, found.finish, found.inputs) == (TEXT, (1, 2), "eos", INPUTS)
    assert found.quantisation == "none"
    assert read_other(str(written(tmp_path / "b", result("p", "port"))), "p", "").quantisation is None


def test_a_directory_is_searched_for_the_page(tmp_path: Path) -> None:
    written(tmp_path / "out" / "one", result("one.png"))
    written(tmp_path / "out" / "two", result("two.png", "vendor"))
    assert read_other(str(tmp_path / "out"), "two.png", "").name == "vendor"
    with pytest.raises(DsocrError, match=r"has nothing of three\.png"):
        read_other(str(tmp_path / "out"), "three.png", "")
    (tmp_path / "out" / "three.mmd").write_text("clean")
    (tmp_path / "out" / "three_det.mmd").write_text("raw")
    assert read_other(str(tmp_path / "out"), "three.png", "").text == "raw"


def test_what_is_no_result_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("[]")
    with pytest.raises(DsocrError, match="neither a result of this project nor a text"):
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
