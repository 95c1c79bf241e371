"""B from where another engine left it, and the table of what both sides used."""

from __future__ import annotations

from pathlib import Path

from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reading
from dsocr_core.trace.why.reference import of_result
from dsocr_core.trace.why.run import fact_lines
from tests.support.model_inputs import INPUTS

TEXT = "<|ref|>text<|/ref|>a line of the page"


def result(page: str, backend: str = "fast") -> OcrResult:
    request = OcrRequest(Path(page), "gundam", "<image>\nFree OCR.", source=page)
    return OcrResult(backend, request, (8, 8), TEXT, (1, 2), (), "eos", INPUTS, ())


def test_a_result_tells_all() -> None:
    found = of_result(result("page.png"))
    assert (found.text, found.tokens, found.finish, found.inputs) == (TEXT, (1, 2), "eos", INPUTS)
    assert found.quantisation == "none" and of_result(result("p", "port")).quantisation is None


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
