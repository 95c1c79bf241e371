"""Parity of results made by hand: the verdict of every case, and the figures beside it."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.input_parity import compare_inputs
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import ParityReport, Tolerance, Verdict
from dsocr_core.reading.records import OcrRequest, OcrResult, PageFile
from tests.support.planted import sample_results
from tests.support.results import make_result, of_pages

PAGE, END = Path("page.png"), "<｜end▁of▁sentence｜>"


def page(*boxes: tuple[str, int, str]) -> str:
    """Text of blocks (label, top, text), each 500 wide and 50 high."""
    return "".join(
        f"<|ref|>{label}<|/ref|><|det|>[[100, {top}, 600, {top + 50}]]<|/det|>\n{text}\n"
        for label, top, text in boxes
    )


# 100 characters of text, the line ends between the blocks among them.
BLOCKS = (
    ("title", 50, "Head"),
    ("text", 150, "a" * 44),
    ("text", 250, "b" * 36),
    ("table", 350, "<td>3</td>"),
)
TEXT = page(*BLOCKS)
LONG = page(("text", 50, "a" * 1000))


def changed(number: int, label: str | None = None, top: int = 0, text: str | None = None) -> str:
    """The page with one block changed; `top` is added."""
    old_label, old_top, old_text = BLOCKS[number]
    block = (label or old_label, old_top + top, old_text if text is None else text)
    return page(*BLOCKS[:number], block, *BLOCKS[number + 1 :])


def compare(a: str, b: str) -> ParityReport:
    return compare_results(make_result(a), make_result(b, backend="vendor"))


def result(text: str = TEXT, **changes: object) -> OcrResult:
    return replace(make_result(text), **changes)  # type: ignore[arg-type]


def ended(text: str) -> OcrResult:
    """A result that was cut off at the token limit."""
    return result(text, finish_reason="length")


UNKNOWN = {"token_ids": None, "token_texts": (), "inputs": None, "finish_reason": None, "timings": ()}
A43X = "a" * 43 + "x"
OTHER = changed(1, text=A43X)  # by one character
CUT = changed(3, text="<td>3</td")
LOWER_LIMIT = replace(ended(CUT), inputs=make_result(max_new_tokens=99).inputs)
CUT_AND_OTHER = replace(
    make_result(LONG.replace("a" * 78, "z" * 78, 1), dtype="bfloat16"), finish_reason="length"
)
JOINED = page(*BLOCKS[:1], ("text", 150, "a" * 44 + "\n\n" + "b" * 36 + "\n\n<td>3</td>"))

OTHER_LABELS = page(*(("other", top, text) for _, top, text in BLOCKS))
TURNED = replace(make_result(TEXT, grid=(2, 1)), image_size=(800, 1000))
R, W, D = result(), "within_tolerance", "differs"

CASES: dict[str, tuple[OcrResult, OcrResult, str, str]] = {
    "equal": (R, R, "identical", ""),
    "both cut off at the same token": (ended(TEXT), ended(TEXT), "identical", ""),
    "nothing known but equal texts": (result(**UNKNOWN), result(**UNKNOWN), "identical", ""),
    "an end marker left out": (result(**UNKNOWN), result(TEXT + END, **UNKNOWN), "identical", ""),
    # Equal outputs of unequal inputs are not green.
    "equal tokens of other inputs": (R, make_result(TEXT, no_repeat_ngram_size=35), W, "same_text"),
    "the same text in other tokens": (R, result(token_ids=(1, 2)), W, "tokens"),
    "a box more, without text": (result(page(*BLOCKS, ("image", 450, ""))), R, W, "extra"),
    "a label": (result(changed(1, label="list")), R, W, "relabelled"),
    "19 of 999": (result(changed(1, top=19)), R, W, "moved"),
    # Beyond the tolerance.
    "20 of 999": (result(changed(1, top=20)), R, D, "moved"),
    "one character": (result(OTHER), R, D, "text"),
    "one character, both cut off": (ended(OTHER), ended(TEXT), D, "text"),
    "two boxes less": (result(JOINED), R, D, "missing missing text"),
    "all labels": (result(OTHER_LABELS), R, D, "relabelled relabelled relabelled relabelled"),
    "text without boxes": (result("plain text"), result("plain test"), D, "text"),
    # How a side ended.
    "cut off on one side": (ended(CUT), R, D, "truncated text"),
    "no EOS on one side, nothing missing": (R, ended(TEXT), D, "truncated"),
    "an end is not known": (result(OTHER, finish_reason=None), R, D, "ended text"),
    "an end that only the text shows": (result(OTHER + END, finish_reason=None), R, D, "text"),
    "a lower limit is the cause of a cut": (LOWER_LIMIT, R, D, "truncated text inputs"),
    # What used to be a green PASS together: 78 of 1000 characters, cut off, other inputs.
    "7.8 % of the characters": (CUT_AND_OTHER, result(LONG), D, "truncated text inputs"),
    "page sizes and inputs": (TURNED, R, "not_comparable", "pages inputs"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_verdict_and_differences(case: str) -> None:
    a, b, verdict, kinds = CASES[case]
    report = compare_results(a, b)
    assert (report.verdict, " ".join(item.kind for item in report.differences)) == (verdict, kinds)
    assert compare_results(b, a).verdict == verdict, "the verdict does not depend on which side is A"
    assert (report.reasons == ()) == (verdict == "identical")


@pytest.mark.parametrize(
    ("text", "tolerance", "verdict"),
    [
        (changed(1, text="a" * 41 + "xxx"), Tolerance(character_error_rate=0.05), "within_tolerance"),
        (changed(1, text=A43X), Tolerance(character_error_rate=0), "differs"),
        (changed(1, text=A43X), Tolerance(character_error_rate=0.01), "within_tolerance"),  # 1 of 100
        (changed(1, top=40), Tolerance(shift_percent=5), "within_tolerance"),
        (changed(1, top=20), Tolerance(shift_percent=2000 / 999), "within_tolerance"),
        (changed(1, top=5), Tolerance(shift_percent=0.1), "differs"),
        (page(*BLOCKS, ("image", 450, ""), ("image", 550, "")), Tolerance(boxes=2), "within_tolerance"),
        (changed(1, label="list"), Tolerance(boxes=0), "differs"),
    ],
)
def test_the_tolerance_can_be_set(text: str, tolerance: Tolerance, verdict: Verdict) -> None:
    report = compare_results(result(text), result(), tolerance)
    assert report.verdict == verdict
    moved = [pair for pair in report.pairs if pair.state == "moved"]
    assert bool(moved) == (tolerance.shift_percent == 0.1)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_tolerance_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(DsocrError, match=r"tolerance.shift_percent is .*: give 0 to"):
        Tolerance(shift_percent=value)


@pytest.mark.parametrize(
    ("pixels", "verdict"),
    [("aa", "identical"), ("ff", "not_comparable"), (None, "not_comparable")],
)
def test_another_image_file_is_comparable_only_with_the_same_pixels(
    pixels: str | None, verdict: Verdict
) -> None:
    sides = make_result(TEXT), make_result(TEXT, global_sha256=pixels)
    a, b = (
        replace(side, request=replace(side.request, file=PageFile(1, sha256)))
        for side, sha256 in zip(sides, ("11", "22"), strict=True)
    )
    report = compare_results(a, b if pixels else replace(b, inputs=None))
    assert report.verdict == verdict
    assert (report.reasons[:1] == ("other pages: the image files differ",)) == (verdict == "not_comparable")


# --- what is not known ----------------------------------------------------------------------------


def test_what_a_backend_cannot_tell_is_not_known_and_never_equal() -> None:
    report = compare_results(result(**UNKNOWN), result())
    assert report.tokens_equal is None and report.first_divergence is None
    assert report.input_parity is None
    names = {line.name for line in compare_inputs(None, None)}
    model = {(line.state, line.a, line.b is None) for line in report.inputs if line.name in names}
    assert model == {("not known", None, False)}


# --- figures --------------------------------------------------------------------------------------


def test_shifts_and_error_rates() -> None:
    report = compare(changed(1, top=19), TEXT)
    assert report.max_coordinate_difference_percent == pytest.approx(1900 / 999)
    # The markup of boxes and the end marker are no text; markup that is no box is.
    assert report.character_error_rate == compare(TEXT + END, TEXT).character_error_rate == 0
    odd = TEXT + "<|ref|>text<|/ref|><|det|>[[1, 2]]<|/det|>"
    assert compare(odd, TEXT).character_error_rate == pytest.approx(43 / 100)


# Tokens of a byte each decode to U+FFFD, so their texts are longer than the text itself.
HEAD = "<|ref|>a<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>" + "漢" * 40
TAIL = "<|ref|>b<|/ref|><|det|>[[90, 90, 99, 99]]<|/det|>"
BYTES = replace(
    make_result(f"{HEAD}x{TAIL}", token_ids=(*range(165), 7)),
    token_texts=(*HEAD[:45], *["\ufffd"] * 120, "x"),
)
BX = TEXT.replace("bb", "bx", 1)


@pytest.mark.parametrize(
    ("a", "b", "token", "box"),
    [
        (result(), result(BX), "b", 2),
        (result(), result(page(("title", 20, ""), *BLOCKS).replace("Head", "Hexd")), "5", 0),
        (result("Head"), result(page(("title", 50, "Head"))), "H", None),
        (BYTES, make_result(f"{HEAD}y{TAIL}", token_ids=(*range(165), 8)), "x", 0),
        (result(), result(TEXT[:40]), TEXT[40], 0),
    ],
)
def test_the_first_divergence_lies_in_a_block_of_a(
    a: OcrResult, b: OcrResult, token: str, box: int | None
) -> None:
    found = compare_results(a, b).first_divergence
    assert found is not None and (a.token_texts[found.index], found.box_a) == (token, box)
    assert found.context == "".join(a.token_texts[max(0, found.index - 12) : found.index])


DECIDES = (
    {"prompt_ids": (0, 5, 5, 5, 8)}, {"prompt_ids": (0, 5, 5, 5)}, {"prompt_ids": (*range(40), 8)},
    {"image_mask": ((2, 3),)}, {"image_mask": ((1, 2),)}, {"grid": (2, 1)}, {"global_sha256": "ab"},
    {"global_shape": (1, 3, 512, 512)}, {"tiles_shape": (2, 3, 640, 640)}, {"tiles_sha256": "ab"},
    {"no_repeat_ngram_size": 35}, {"dtype": "bfloat16"}, {"rotary_dtype": "bfloat16"},
)  # fmt: skip
SHOWN = ({"attention": "sdpa"}, {"max_new_tokens": 900})  # these decide nothing


@pytest.mark.parametrize("change", [*DECIDES, *SHOWN], ids=lambda value: next(iter(value)))
def test_every_input_is_compared(change: dict) -> None:
    a, b = make_result(**change), make_result(backend="vendor")
    report, unknown = compare_results(a, b), compare_results(replace(a, request=OcrRequest.imported(PAGE)), b)
    assert report.input_parity is (change not in DECIDES)
    assert unknown.input_parity is (False if change in DECIDES else None)
    differing = [line for line in report.inputs if line.state == "differs"]
    assert differing and all(line.decides == (change in DECIDES) for line in differing)
    assert report.verdict == ("within_tolerance" if change in DECIDES else "identical")
    assert all(line.a != line.b for line in differing), "a difference must be visible"


def test_long_texts_are_bounded_and_what_is_not_measured_does_not_pass() -> None:
    started = time.process_time()
    report = compare("ab" * 500_000, "ba" * 500_000 + "c" * 1000)
    assert time.process_time() - started < 5  # of all characters it would be minutes
    assert 0 < report.character_error_rate < 0.01 and report.verdict == "differs"
    assert any("beyond the characters that are measured" in reason for reason in report.reasons)


PAGES = (TEXT, LONG, page(("text", 50, "Total 1,234.00")))
"""Three pages of one prompt; the second has no second box."""


def read_together(*pages: str, head: str = "", backend: str = "eager") -> OcrResult:
    text = head + "".join(f"<PAGE>\n{text}" for text in pages)
    return of_pages(make_result(text, backend), (1000, 800), (640, 480))


@pytest.mark.parametrize(
    ("other", "verdict", "words"),
    [
        (read_together(*PAGES), "identical", []),
        (read_together(TEXT, LONG, page(("text", 50, "Total 7,234.00"))), "differs",
         [("text", "box 6 (text), 1,234.00 -> 7,234.00")]),
        (read_together(changed(0, top=15), LONG, PAGES[2]), "within_tolerance", [("moved", "1 box")]),
        # The same box on another page is another box.
        (read_together(TEXT, "a" * 1000, LONG.replace("a" * 1000, "Total 1,234.00")), "differs",
         [("extra", "only A has box 5"), ("text", "outside of boxes")]),
        (read_together(TEXT, LONG), "differs",
         [("pages", "B: 2 pages came back of 3"), ("extra", "only A has box 6 (text)")]),
        (read_together(*PAGES, "more"), "differs",
         [("pages", "B: 4 pages came back of 3"), ("text", "outside of boxes, (nothing) -> more")]),
        (read_together(*PAGES, head="Dear all"), "differs",
         [("pages", "B: 8 characters before the first <PAGE>"), ("text", "outside of boxes, (")]),
        (replace(read_together(*PAGES), more_sizes=((1000, 800), (640, 481))), "not_comparable",
         [("pages", "sizes of page 3 differ, 640 x 480 and 640 x 481")]),
    ],
)  # fmt: skip
def test_pages_of_one_prompt_are_compared(
    other: OcrResult, verdict: Verdict, words: list[tuple[str, str]]
) -> None:
    report = compare_results(read_together(*PAGES), other)
    found = [(item.kind, item.words) for item in report.differences]
    assert report.verdict == verdict and len(found) == len(words), found
    assert all(kind == k and said.startswith(w) for (kind, said), (k, w) in zip(found, words, strict=True)), (
        found
    )
    assert all(pair.a.page == pair.b.page for pair in report.pairs if pair.a and pair.b)


def test_the_results_that_come_with_the_samples_are_identical() -> None:
    reports = [compare_results(a, b) for a, b in sample_results()]
    assert len(reports) == 14
    assert {report.verdict for report in reports} == {"identical"}
    assert all(report.tokens_equal and report.input_parity for report in reports)
