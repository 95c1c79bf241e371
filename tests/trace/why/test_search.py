"""The search for a cause, on a made-up reader: what is excluded, in which order, and when it stops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dsocr_core.models.hypotheses import hypotheses_of
from dsocr_core.reading.records import NgramPolicy, OcrRequest
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.exclude import Page
from dsocr_core.trace.why.match import SideB
from dsocr_core.trace.why.reader import Reading
from dsocr_core.trace.why.run import fact_lines
from dsocr_core.trace.why.search import Budget, Finding, Search
from tests.support.results import INPUTS

A = Attempt(OcrRequest(Path("page.png"), "gundam", "<image>\nFree OCR."), "float32")
BY_NAME = {each.name: each for each in hypotheses_of("deepseek_ocr")}
SPECIAL = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<td>")
LINE = "the same line of the page again and again; "
BIG = Page(4000, 4000, turned=True, swapped=False)


@dataclass
class FakeReader:
    """Writes characters as tokens; each setting leaves its mark in another place of the text."""

    special_texts: tuple[str, ...] = SPECIAL
    runs: int = 0

    def policy(self, attempt: Attempt) -> NgramPolicy:
        request = attempt.request
        return NgramPolicy(request.no_repeat_ngram_size, request.ngram_window)

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def text(self, tokens: tuple[int, ...]) -> str:
        return "".join(map(chr, tokens))

    def write(self, attempt: Attempt) -> str:
        request = attempt.request
        marks = f"{'!' if not request.exif else ''}{attempt.dtype[0]} " if not request.exif else ""
        start = f"views {request.preset} {request.max_tiles} {request.template} {marks}{LINE}"
        rule = f"{LINE}{request.no_repeat_ngram_size}/{request.ngram_window} {LINE}"
        half = "half " if attempt.dtype == "float16" else ""
        return f"<|ref|>text<|/ref|>{start}{half}{LINE}{rule}end"

    def read(self, attempt: Attempt, *_: object, **__: object) -> Reading:
        self.runs += 1
        text = self.write(attempt)
        return Reading(tuple(self.encode(text)), text, "eos", INPUTS)


def search(
    other: SideB, budget: Budget | None = None, first: tuple[str, ...] = (), page: Page = BIG
) -> Finding:
    return Search(FakeReader(), A, other, page, budget, first).run()  # type: ignore[arg-type]


def written(*names: str) -> str:
    return FakeReader().write(A.under(BY_NAME[name] for name in names))


@pytest.mark.parametrize("name", ["ngram-30-90", "roles", "tiles-6", "no-tiles", "no-exif", "fp16", "bf16"])
def test_each_cause_is_found_alone(name: str) -> None:
    text = written(name) if name != "bf16" else written("fp16").replace("half ", "bf ")
    found = search(SideB("b", text))
    if name == "bf16":
        assert found.cause is None and found.sentence.startswith("not explained")
    else:
        assert found.cause is not None and found.cause.names == (name,)
        assert found.sentence == f"B is reproduced exactly with {BY_NAME[name].words}"


@pytest.mark.parametrize(
    "names",
    [("tiles-6", "ngram-30-90"), ("roles", "fp16"), ("no-newline", "tiles-32"), ("no-exif", "ngram-off")],
)
def test_two_causes_are_found_together(names: tuple[str, str]) -> None:
    found = search(SideB("b", written(*names)))
    assert found.cause is not None and set(found.cause.names) == set(names)


def test_a_limit_and_stripped_tokens_cost_no_run() -> None:
    cut = search(SideB("b", written()[:90]))
    assert cut.cause is not None and cut.trials == []
    assert cut.sentence == "B is reproduced exactly with a token limit of 90 characters"
    ids = tuple(FakeReader().encode(written()))
    assert search(SideB("b", written()[:90], ids[:90])).cause.match.free == ("a token limit of 90",)  # type: ignore[union-attr]
    stripped = written().replace("<|ref|>", "").replace("<|/ref|>", "")
    assert search(SideB("b", stripped)).sentence == "B is reproduced exactly with special tokens stripped"
    both = written("roles").replace("<|ref|>", "").replace("<|/ref|>", "")
    assert search(SideB("b", both)).sentence.endswith(
        "role markers around the prompt and special tokens stripped"
    )


def test_the_budget_ends_the_search_and_says_so() -> None:
    found = search(SideB("b", "something else entirely, of another model"), Budget(runs=3))
    assert (len(found.trials), found.cause) == (3, None)
    assert "the budget of 3 runs is spent" in found.sentence
    assert "0 s" in (search(SideB("b", "other"), Budget(seconds=0)).stopped or "")


def test_exclusions_name_their_reason() -> None:
    found = search(SideB("b", "x" * 80), page=Page(500, 700, turned=False, swapped=False))
    why = {each.hypothesis.name: each.why for each in found.exclusions}
    assert why["ngram-20"] == why["tiles-640"] == "A does it too"
    assert why["tiles-6"] == "the page is cut into 2 x 3 tiles under both"
    assert why["no-exif"] == "the file has no EXIF rotation"
    assert found.cause is None and found.stopped is None


def test_what_b_says_of_itself_comes_first() -> None:
    theirs = replace(INPUTS, no_repeat_ngram_size=40, ngram_window=77)
    text = FakeReader().write(
        replace(A, request=replace(A.request, no_repeat_ngram_size=40, ngram_window=77))
    )
    found = search(SideB("b", text, inputs=theirs))
    assert found.sentence == "B is reproduced exactly with n-gram 40, window 77" and len(found.trials) == 1


def test_equal_inputs_exclude_prompt_and_pixels() -> None:
    found = search(SideB("b", "x" * 80, inputs=INPUTS))
    why = {each.hypothesis.name: each.why for each in found.exclusions}
    assert why["roles"] == "the prompt's ids are equal"
    assert why["tiles-6"] == why["no-exif"] == "the pixels of all views are equal"
    assert why["ngram-30-90"] == "B's n-gram rule is 20"
    assert why["fp16"] == "B computes in float32"
    assert len(found.trials) == 0 and found.cause is None


def test_a_rule_that_never_fired_is_excluded_without_a_run() -> None:
    """The texts part in the first line, where no rule of 20 tokens and more forbids anything."""
    found = search(SideB("b", written("roles")))
    why = {each.hypothesis.name: each.why for each in found.exclusions}
    assert why["ngram-30-90"].startswith("it forbids nothing else in the first ")
    assert len(found.trials) == 2 and found.cause is not None and found.cause.names == ("roles",)


def test_facts_are_equal_different_or_not_known() -> None:
    request = OcrRequest(Path("page.png"), "gundam", "<image>\nFree OCR.", template="roles")
    reading = Reading((1,), "a", "length", INPUTS)
    silent = {line.name: line.state for line in fact_lines(request, reading, SideB("b", "text"))}
    assert set(silent.values()) == {"not known"}
    other = SideB("b", "t", inputs=INPUTS, prompt="<image>\nFree OCR.", finish="eos", quantisation="q8_0")
    lines = {line.name: line for line in fact_lines(request, reading, other)}
    assert lines["grid"].state == lines["n-gram size"].state == "equal"
    assert lines["prompt as read"].a == "<|User|>: <image>\nFree OCR.\n\n<|Assistant|>:"
    assert {lines[name].state for name in ("prompt as read", "quantisation", "stop reason")} == {"differs"}
