"""Parity of results made by hand: the verdict of every case, and the figures beside it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading import parity as parity_module
from dsocr_core.reading.input_parity import MODEL_LINES
from dsocr_core.reading.parity import character_error_rate, parity
from dsocr_core.reading.parity_records import ParityReport, Tolerance, Verdict, input_line
from dsocr_core.reading.records import OcrResult, PageFile
from tests.support.planted import sample_results
from tests.support.results import make_result, of_pages

END = "<｜end▁of▁sentence｜>"


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
    return parity(make_result(a), make_result(b, backend="vendor"))


def result(text: str = TEXT, **changes: object) -> OcrResult:
    return replace(make_result(text), **changes)  # type: ignore[arg-type]


def ended(text: str) -> OcrResult:
    """A result that was cut off at the token limit."""
    return result(text, finish_reason="length")


UNKNOWN = {"token_ids": None, "token_texts": (), "inputs": None, "finish_reason": None, "timings": ()}

ONE_LETTER = f"text differs by 1 %: {'a' * 43}x -> {'a' * 44}"
SEVENTY_EIGHT = f"text differs by 7.8 %: {'z' * 59}… -> {'a' * 59}…"
# --- the table of verdicts ------------------------------------------------------------------------

CASES: list[tuple[str, OcrResult, OcrResult, Verdict, tuple[str, ...]]] = [
    ("equal", result(), result(), "identical", ()),
    ("both empty", result(""), result(""), "identical", ()),
    ("both cut off at the same token", ended(TEXT), ended(TEXT), "identical", ()),
    ("tokens not known, text and boxes equal", result(**UNKNOWN), result(), "identical", ()),
    ("nothing known but equal texts", result(**UNKNOWN), result(**UNKNOWN), "identical", ()),
    (
        "an end marker that one side leaves out",
        result(**UNKNOWN),
        result(TEXT + END, **UNKNOWN),
        "identical",
        (),
    ),
    ("another attention", result(), make_result(TEXT, attention="sdpa"), "identical", ()),
    ("a limit that was not reached", result(), make_result(TEXT, max_new_tokens=900), "identical", ()),
    # Equal outputs of unequal inputs are not green.
    (
        "equal tokens of other inputs",
        result(),
        make_result(TEXT, no_repeat_ngram_size=35),
        "within_tolerance",
        ("inputs differ: n-gram size (20 and 35)",),
    ),
    (
        "equal text of other pixels, tokens not known",
        result(token_ids=None),
        make_result(TEXT, global_sha256="ff" * 32, dtype="bfloat16"),
        "within_tolerance",
        ("inputs differ: global view SHA-256, dtype (float32 and bfloat16)",),
    ),
    (
        "the same text in other tokens",
        result(),
        result(token_ids=(1, 2)),
        "within_tolerance",
        ("text and boxes are equal, written with other tokens",),
    ),
    (
        "2 % of the characters",
        result(changed(1, text="a" * 42 + "xx")),
        result(),
        "differs",
        (f"text differs by 2 %: {'a' * 42}xx -> {'a' * 44}",),
    ),
    (
        "2 % of the characters, both cut off",
        ended(changed(1, text="a" * 42 + "xx")),
        ended(TEXT),
        "differs",
        (f"text differs by 2 %: {'a' * 42}xx -> {'a' * 44}",),
    ),
    (
        "a box more, without text",
        result(page(*BLOCKS, ("image", 450, ""))),
        result(page(*BLOCKS)),
        "within_tolerance",
        ("5 boxes and 4",),
    ),
    ("a label", result(changed(1, label="list")), result(), "within_tolerance", ("1 under another label",)),
    (
        "every box off by 1 %",
        result(page(*((label, top + 10, text) for label, top, text in BLOCKS))),
        result(),
        "within_tolerance",
        ("all 4 boxes moved by 1 % down",),
    ),
    ("19 of 999", result(changed(1, top=19)), result(), "within_tolerance", ("boxes agree within 1.9 %",)),
    # Beyond the tolerance.
    (
        "20 of 999",
        result(changed(1, top=20)),
        result(),
        "differs",
        ("a box is off by 2 % of the page's side (limit 2 %)",),
    ),
    (
        "3 % of the characters",
        result(changed(1, text="a" * 41 + "xxx")),
        result(),
        "differs",
        (f"text differs by 3 %: {'a' * 41}xxx -> {'a' * 44}",),
    ),
    (
        "two boxes less",
        result(page(*BLOCKS[:1], ("text", 150, "a" * 44 + "\n\n" + "b" * 36 + "\n\n<td>3</td>"))),
        result(),
        "differs",
        ("2 boxes with text on one side alone: " + f'"{"b" * 36}"', "2 boxes and 4 (limit 1 may differ)"),
    ),
    (
        "a box more and a label",
        result(page(("list", 50, "Head"), *BLOCKS[1:], ("image", 450, ""))),
        result(),
        "differs",
        ("1 box without a partner and 1 under another label (limit 1 may differ)", "5 boxes and 4"),
    ),
    (
        "as many boxes elsewhere",
        result(page(*((label, top + 500, text) for label, top, text in BLOCKS))),
        result(),
        "differs",
        ('8 boxes with text on one side alone: "Head"', "8 boxes without a partner (limit 1 may differ)"),
    ),
    (
        "all labels",
        result(page(*(("other", top, text) for _, top, text in BLOCKS))),
        result(),
        "differs",
        ("4 under another label (limit 1 may differ)",),
    ),
    (
        "text without boxes",
        result("plain text"),
        result("plain test"),
        "differs",
        ("text differs by 10 %: text -> test",),
    ),
    # How a side ended.
    (
        "cut off on one side, one character missing",
        ended(changed(3, text="<td>3</td")),
        result(),
        "differs",
        ("A ended at the token limit, B with EOS", "text differs by 1 %: </td -> (nothing)"),
    ),
    (
        "no EOS on one side, nothing missing",
        result(),
        ended(TEXT),
        "differs",
        ("A ended with EOS, B at the token limit",),
    ),
    (
        "the end of one side is not known",
        result(changed(1, text="a" * 43 + "x"), finish_reason=None),
        result(),
        "differs",
        ("how A ended is not known", ONE_LETTER),
    ),
    (
        "no end is known",
        result(changed(1, text="a" * 43 + "x"), finish_reason=None),
        result(finish_reason=None),
        "differs",
        ("how the sides ended is not known", ONE_LETTER),
    ),
    (
        "an end that only the text shows",
        result(changed(1, text="a" * 43 + "x") + END, finish_reason=None),
        result(),
        "differs",
        (ONE_LETTER,),
    ),
    (
        "a lower limit is the cause of a cut",
        replace(ended(changed(3, text="<td>3</td")), inputs=make_result(max_new_tokens=99).inputs),
        result(),
        "differs",
        (
            "inputs differ: token limit (99 and 8192)",
            "A ended at the token limit, B with EOS",
            "text differs by 1 %: </td -> (nothing)",
        ),
    ),
    # What used to be a green PASS, alone and together: 78 of 1000 characters, cut off, other inputs.
    (
        "7.8 % of the characters",
        result(LONG.replace("a" * 78, "z" * 78, 1)),
        result(LONG),
        "differs",
        (SEVENTY_EIGHT,),
    ),
    ("cut off", ended(LONG), result(LONG), "differs", ("A ended at the token limit, B with EOS",)),
    (
        "other inputs",
        make_result(LONG, dtype="bfloat16"),
        result(LONG),
        "within_tolerance",
        ("inputs differ: dtype (bfloat16 and float32)",),
    ),
    (
        "7.8 % of the characters, cut off, other inputs",
        replace(make_result(LONG.replace("a" * 78, "z" * 78, 1), dtype="bfloat16"), finish_reason="length"),
        result(LONG),
        "differs",
        (
            "inputs differ: dtype (bfloat16 and float32)",
            "A ended at the token limit, B with EOS",
            SEVENTY_EIGHT,
        ),
    ),
    # Not one page.
    (
        "page sizes",
        result(image_size=(800, 1000)),
        result(),
        "not_comparable",
        ("page sizes differ: 800 x 1000 and 1000 x 800",),
    ),
    (
        "page sizes and inputs",
        replace(make_result(TEXT, grid=(2, 1)), image_size=(800, 1000)),
        result(),
        "not_comparable",
        ("page sizes differ: 800 x 1000 and 1000 x 800", "inputs differ: grid (2 x 1 and 1 x 1)"),
    ),
]


@pytest.mark.parametrize(("a", "b", "verdict", "reasons"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_every_case_has_its_verdict_and_reasons(
    a: OcrResult, b: OcrResult, verdict: Verdict, reasons: tuple[str, ...]
) -> None:
    report = parity(a, b)
    assert (report.verdict, report.reasons) == (verdict, reasons)
    assert parity(b, a).verdict == verdict, "the verdict does not depend on which side is A"
    assert (report.reasons == ()) == (verdict == "identical")


@pytest.mark.parametrize(
    ("text", "tolerance", "verdict"),
    [
        (changed(1, text="a" * 41 + "xxx"), Tolerance(character_error_rate=0.05), "within_tolerance"),
        (changed(1, text="a" * 43 + "x"), Tolerance(character_error_rate=0), "differs"),
        (changed(1, top=40), Tolerance(shift_percent=5), "within_tolerance"),
        (changed(1, top=5), Tolerance(shift_percent=0.1), "differs"),
        (page(*BLOCKS, ("image", 450, ""), ("image", 550, "")), Tolerance(boxes=2), "within_tolerance"),
        (changed(1, label="list"), Tolerance(boxes=0), "differs"),
    ],
)
def test_the_tolerance_can_be_set(text: str, tolerance: Tolerance, verdict: Verdict) -> None:
    report = parity(result(text), result(), tolerance)
    assert report.verdict == verdict
    moved = [pair for pair in report.pairs if pair.state == "moved"]
    assert bool(moved) == (tolerance.shift_percent == 0.1)


@pytest.mark.parametrize(
    "values", [{"boxes": -1}, {"shift_percent": float("nan")}, {"character_error_rate": float("inf")}]
)
def test_a_tolerance_out_of_range_is_named(values: dict[str, float]) -> None:
    with pytest.raises(DsocrError, match=f"tolerance.{next(iter(values))} is .*: give 0 or more"):
        Tolerance(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pixels", "verdict"),
    [("equal", "identical"), ("other", "not_comparable"), ("unknown", "not_comparable")],
)
def test_another_image_file_is_comparable_only_with_the_same_pixels(pixels: str, verdict: Verdict) -> None:
    a = make_result(TEXT)
    b = make_result(TEXT, global_sha256="ff" if pixels == "other" else a.inputs.global_sha256)  # type: ignore[union-attr]
    if pixels == "unknown":
        b = replace(b, inputs=None)
    a, b = (
        replace(side, request=replace(side.request, file=PageFile(1, sha256)))
        for side, sha256 in ((a, "11"), (b, "22"))
    )
    report = parity(a, b)
    assert report.verdict == verdict
    if verdict == "not_comparable":
        assert report.reasons[0] == "the image files differ"


# --- what is not known ----------------------------------------------------------------------------


def test_what_a_backend_cannot_tell_is_not_known_and_never_equal() -> None:
    report = parity(result(**UNKNOWN), result())
    assert report.tokens_equal is None and report.first_divergence is None
    assert report.input_parity is None
    model = [line for line in report.inputs if line.name in MODEL_LINES]
    assert {line.state for line in model} == {"not known"}
    assert {line.a for line in model} == {None}
    assert all(line.b is not None for line in model)


def test_a_known_difference_decides_input_parity_whatever_else_is_not_known() -> None:
    known = input_line("n-gram size", "20", "35")
    other = input_line("dtype", None, "float32")
    shown = input_line("attention", "sdpa", "eager", decides=False)
    equal = input_line("grid", "1 x 1", "1 x 1")

    def input_parity(*lines: object) -> bool | None:
        return replace(parity(result(), result()), inputs=lines).input_parity  # type: ignore[arg-type]

    assert input_parity(known, other) is False
    assert input_parity(equal, other) is None
    assert input_parity(equal, shown) is True
    assert input_parity(shown) is None and input_parity() is None


# --- figures --------------------------------------------------------------------------------------


def test_figures_of_equal_results() -> None:
    report = compare(TEXT, TEXT)
    assert report.tokens_equal and report.first_divergence is None
    assert (report.boxes_a, report.boxes_b, report.boxes_matched) == (4, 4, 4)
    assert report.max_coordinate_difference_percent == 0 == report.mean_coordinate_difference_percent
    assert report.character_error_rate == 0
    assert report.input_parity


def test_pages_without_boxes_measure_no_shift() -> None:
    report = compare("plain text", "plain test")
    assert report.max_coordinate_difference_percent is None
    assert report.mean_coordinate_difference_percent is None
    assert report.character_error_rate == pytest.approx(0.1)
    assert report.first_divergence is not None and report.first_divergence.box_a is None


def test_shifts_are_of_the_pages_side() -> None:
    report = compare(changed(1, top=19), TEXT)
    assert report.max_coordinate_difference_percent == pytest.approx(100 * 19 / 999)
    # Top and bottom of one of four boxes are off.
    assert report.mean_coordinate_difference_percent == pytest.approx(100 * 19 / 999 * 2 / 16)


def test_the_error_rate_leaves_out_the_markup_of_boxes_and_the_end_marker() -> None:
    assert compare(changed(1, top=19, label="list"), TEXT).character_error_rate == 0
    assert compare(TEXT + END, TEXT).character_error_rate == 0
    # Markup that is no box is text.
    odd = TEXT + "<|ref|>text<|/ref|><|det|>[[1, 2]]<|/det|>"
    assert compare(odd, TEXT).character_error_rate == pytest.approx(43 / 100)


def test_the_first_divergence_lies_in_a_block_of_each_side() -> None:
    a, b = TEXT, page(("title", 20, ""), *BLOCKS).replace("Head", "Hexd")
    b_only = page(*BLOCKS).replace("bb", "bx", 1)
    divergence = compare(a, b_only).first_divergence
    assert divergence is not None
    assert divergence.index == a.index("bb") + 1
    assert (divergence.text_a, divergence.text_b) == ("b", "x")
    assert divergence.context.endswith("<|/det|>\nb")
    assert (divergence.box_a, divergence.box_b) == (2, 2)
    divergence = compare(a, b).first_divergence
    assert divergence is not None and (divergence.box_a, divergence.box_b) == (0, 0)
    lone = compare("Head", page(("title", 50, "Head"))).first_divergence
    assert lone is not None and (lone.box_a, lone.box_b) == (None, 0)


def test_a_divergence_where_one_side_had_ended() -> None:
    divergence = compare("abc", "abcd").first_divergence
    assert divergence is not None
    assert (divergence.index, divergence.text_a, divergence.text_b) == (3, "(ended)", "d")
    divergence = compare("abc", "").first_divergence
    assert divergence is not None and divergence.text_b == "(ended)" and divergence.context == ""


def test_a_divergence_without_token_texts_names_the_ids() -> None:
    a, b = TEXT, TEXT.replace("bb", "bx", 1)
    divergence = parity(replace(make_result(a), token_texts=()), make_result(b)).first_divergence
    assert divergence is not None
    assert (divergence.text_a, divergence.text_b) == (f"#{ord('b')}", "x")
    assert (divergence.box_a, divergence.box_b) == (2, 2)


def test_a_divergence_in_characters_of_many_tokens_is_in_the_block_of_its_text() -> None:
    """Tokens of a byte each decode to U+FFFD, so their texts are longer than the text itself."""
    head = "<|ref|>a<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>" + "漢" * 40
    tail = "<|ref|>b<|/ref|><|det|>[[90, 90, 99, 99]]<|/det|>"
    texts = (*head[:45], *["\ufffd"] * 120)
    a = make_result(head + "x" + tail, token_ids=(*range(165), 7))
    b = make_result(head + "y" + tail, token_ids=(*range(165), 8))
    report = parity(replace(a, token_texts=(*texts, "x")), b)
    assert report.first_divergence is not None and report.first_divergence.box_a == 0


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("", "", 0.0),
        ("abc", "abc", 0.0),
        ("", "abcd", 1.0),
        ("abxd", "abcd", 0.25),
        ("ab", "", 2.0),
        ("abcdef", "ab", 2.0),
    ],
)
def test_the_character_error_rate_by_hand(text: str, reference: str, expected: float) -> None:
    assert character_error_rate(text, reference) == expected


@given(st.text(max_size=30), st.text(max_size=30))
def test_the_character_error_rate_is_the_textbooks(text: str, reference: str) -> None:
    row = list(range(len(reference) + 1))
    for i, a in enumerate(text, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(reference, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    assert character_error_rate(text, reference) == pytest.approx(row[-1] / max(1, len(reference)))


@pytest.mark.parametrize(
    ("change", "decides"),
    [
        ({"prompt_ids": (0, 5, 5, 5, 8)}, True),
        ({"prompt_ids": (0, 5, 5, 5)}, True),
        ({"prompt_ids": (*range(40), 8)}, True),
        ({"image_mask": ((2, 3),)}, True),
        ({"image_mask": ((1, 2),)}, True),
        ({"grid": (2, 1)}, True),
        ({"global_shape": (1, 3, 512, 512)}, True),
        ({"global_sha256": "ab"}, True),
        ({"tiles_shape": (2, 3, 640, 640)}, True),
        ({"tiles_sha256": "ab"}, True),
        ({"no_repeat_ngram_size": 35}, True),
        ({"dtype": "bfloat16"}, True),
        ({"rotary_dtype": "bfloat16"}, True),
        ({"attention": "sdpa"}, False),
        ({"max_new_tokens": 5}, False),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_input_is_compared(change: dict, decides: bool) -> None:
    report = parity(make_result(**change), make_result(backend="vendor"))
    assert report.input_parity is not decides
    differing = [line for line in report.inputs if line.state == "differs"]
    assert differing and any(line.decides for line in differing) == decides
    assert report.verdict == ("within_tolerance" if decides else "identical")
    for line in differing:
        assert line.a != line.b, "a difference must be visible"


def test_long_texts_are_bounded_and_what_is_not_measured_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []

    def counted(a: str, b: str) -> int:
        compared.append(max(len(a), len(b)))
        return Levenshtein.distance(a, b)

    monkeypatch.setattr(parity_module, "Levenshtein", SimpleNamespace(distance=counted))
    report = compare("ab" * 500_000, "ba" * 500_000 + "c" * 1000)
    assert compared and max(compared) <= 100_000
    assert 0 < report.character_error_rate < 0.01
    assert report.verdict == "differs"
    assert "the texts differ beyond the characters that are measured" in report.reasons


@given(st.text(alphabet="<|ref/det>[]0123456789, \n", max_size=80), st.text(max_size=40))
def test_any_texts_can_be_compared(a: str, b: str) -> None:
    report = compare(a, b)
    assert report.tokens_equal == (a == b)
    assert (report.first_divergence is None) == report.tokens_equal
    if a == b:
        assert report.verdict == "identical"
    else:
        assert report.verdict != "identical" and report.reasons


PAGES = (TEXT, LONG, page(("text", 50, "Total 1,234.00")))
"""Three pages of one prompt; the second has no second box."""


def read_together(*pages: str, head: str = "", backend: str = "eager") -> OcrResult:
    text = head + "".join(f"<PAGE>\n{text}" for text in pages)
    return of_pages(make_result(text, backend), (1000, 800), (640, 480))


@pytest.mark.parametrize(
    ("other", "verdict", "reasons"),
    [
        (read_together(*PAGES), "identical", ()),
        (
            read_together(TEXT, LONG, page(("text", 50, "Total 7,234.00"))),
            "differs",
            ("page 3: text differs by",),
        ),
        (read_together(changed(0, top=15), LONG, PAGES[2]), "within_tolerance", ("page 1: ",)),
        # The same box on another page is another box.
        (
            read_together(TEXT, "a" * 1000, LONG.replace("a" * 1000, "Total 1,234.00")),
            "differs",
            ("page 2: a box with text on one side alone",),
        ),
        (
            read_together(TEXT, LONG),
            "differs",
            ("B: 2 pages came back of 3", "page 3: a box with text on one side", "page 3: text differs by"),
        ),
        (read_together(*PAGES, "more"), "differs", ("B: 4 pages came back of 3", "page 4: ")),
        (
            read_together(*PAGES, head="Dear all"),
            "differs",
            ("B: 8 characters before the first <PAGE>", "before the first page: "),
        ),
        (
            replace(read_together(*PAGES), more_sizes=((1000, 800), (640, 481))),
            "not_comparable",
            ("sizes of page 3 differ: 640 x 480 and 640 x 481",),
        ),
    ],
)
def test_pages_of_one_prompt_are_compared_page_by_page(
    other: OcrResult, verdict: Verdict, reasons: tuple[str, ...]
) -> None:
    report = parity(read_together(*PAGES), other)
    found = [next((words for words in report.reasons if words.startswith(begin)), begin) for begin in reasons]
    assert report.verdict == verdict
    assert [words for words in report.reasons if words in found] == found, report.reasons
    assert all(pair.a.page == pair.b.page for pair in report.pairs if pair.a and pair.b)
    if verdict == "within_tolerance":
        assert len(report.reasons) == 1


def test_the_results_that_come_with_the_samples_are_identical() -> None:
    reports = [parity(a, b) for a, b in sample_results()]
    assert len(reports) == 14
    assert {report.verdict for report in reports} == {"identical"}
    assert all(report.tokens_equal and report.input_parity for report in reports)
