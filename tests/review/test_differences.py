"""Every kind of difference on one page, with its evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsocr_core.review.page import Difference, Kind, PageReview
from tests.support.results import make_result
from tests.support.review_sides import BLOCKS, changed, markup, page, texts

TURN = "again and again, "


def only(found: PageReview, kind: Kind) -> Difference:
    """The one difference of a page that has no other kind."""
    assert found.kinds == (kind,)
    (difference,) = found.differences
    return difference


def test_equal_pages_differ_in_nothing() -> None:
    found = texts(markup())
    assert (found.verdict, found.score, found.differences, found.hints) == ("identical", 0, (), ())
    assert found.blocks == () and found.order.matched == 5


def test_a_moved_box_says_by_how_much() -> None:
    found = only(texts(markup(changed(1, box=(100, 180, 900, 280)))), "moved")
    # 30 of 999 down: two corners by 3.003 %, and (100 - 30) / (100 + 30) of both boxes' height in common.
    assert found.evidence == {"iou": round(70 / 130, 4), "shift_percent": round(3000 / 999, 3)}
    assert (found.where, found.boxes_a, found.boxes_b) == ("both", (1,), (1,))


def test_a_shift_within_the_tolerance_is_no_difference_and_weighs_its_percent() -> None:
    found = texts(markup(changed(1, box=(100, 160, 900, 260))))
    assert found.differences == ()
    assert found.parts["shift"] == pytest.approx(1000 / 999, abs=1e-3)
    assert set(found.parts) == {"shift", "tokens"}


def test_a_relabelled_box_names_both_labels() -> None:
    found = only(texts(markup(changed(0, label="sub_title"))), "relabelled")
    assert found.evidence == {"label_a": "sub_title", "label_b": "title", "iou": 1.0, "shift_percent": 0.0}


def test_a_changed_text_counts_its_edits() -> None:
    review = texts(markup(changed(2, text="the sexond paragraph of a page")))
    found = only(review, "text")
    # c -> x, and "the" -> "a": three edits more.
    assert found.evidence["distance"] == 4
    assert (found.boxes_a, found.boxes_b) == ((2,), (2,))
    (block,) = review.blocks
    assert (block.pair, block.text_a, block.text_b) == (2, "the sexond paragraph of a page", BLOCKS[2][2])


def test_the_text_of_a_page_without_boxes_is_compared_whole() -> None:
    review = texts("Hello world", "Hello word")
    assert only(review, "text").evidence == {"distance": 1, "error_rate": 0.1}
    assert review.verdict == "differs"
    assert review.blocks[0].pair is None


def test_text_after_markup_that_cannot_be_read_is_text_outside_of_blocks() -> None:
    broken = "\n\n<|ref|>text<|/ref|><|det|>[[1, 2]]<|/det|>\n"
    review = texts(markup() + broken + "one", markup() + broken + "two")
    assert only(review, "text").evidence == {"distance": 3, "error_rate": 1.0}
    assert review.blocks[0].pair is None


def test_markup_that_is_cut_off_is_text_outside_of_blocks() -> None:
    begun = "<|ref|>title<|/ref|><|det|>[[169"
    review = texts(begun, f"{begun}, 262, ")
    assert only(review, "text").evidence == {"distance": 6, "error_rate": round(6 / 38, 4)}


def test_a_changed_order_counts_what_is_out_of_order() -> None:
    first, second, third, *rest = BLOCKS
    review = texts(markup((second, third, first, *rest)))
    found = only(review, "order")
    # The title comes third: two pairs reversed, one box to put back, one deletion and one insertion.
    assert found.evidence == {"inversions": 2, "edit_distance": 2}
    assert (found.boxes_a, found.boxes_b) == ((2,), (0,))
    assert review.order.normalised == pytest.approx(2 / 5)


def test_truncated_has_no_end_token_either() -> None:
    review = texts(markup(), finish_reason="length", token_ids=tuple(range(8192)), token_texts=())
    assert review.kinds == ("truncated", "no_eos")
    assert (review.verdict, review.reasons[0]) == ("differs", "A ended at the token limit, B with EOS")
    assert review.differences[0].evidence == {"tokens": 8192, "limit": 8192}
    assert review.marks == {"truncated", "no_eos"}


def test_a_repetition_loop_says_its_unit_and_turns() -> None:
    review = texts(markup() + TURN * 20)
    assert review.kinds == ("loop", "text")
    evidence = review.differences[0].evidence
    assert (evidence["period"], evidence["count"]) == (len(TURN), 20)
    assert sorted(str(evidence["unit"])) == sorted(TURN)
    # A letter is a token here.
    assert evidence["from_token"] == evidence["start"]
    assert review.differences[0].words.endswith(f"20 times from token {evidence['start']:,}")


def test_a_state_of_both_sides_is_a_mark_and_no_difference() -> None:
    looped = markup() + TURN * 20
    review = texts(looped, looped)
    assert (review.kinds, review.marks, review.score) == ((), {"loop"}, 0)
    assert review.differences[0].where == "both"


def test_unequal_inputs_are_named_and_never_identical() -> None:
    review = page(make_result(markup(), "eager"), make_result(markup(), "vendor", no_repeat_ngram_size=35))
    found = only(review, "inputs")
    assert found.evidence == {"lines": "n-gram size"}
    assert {line.name: line.state for line in review.inputs}["n-gram size"] == "differs"
    assert (review.verdict, review.reasons) == (
        "within_tolerance",
        ("inputs differ: n-gram size (20 and 35)",),
    )


def test_other_page_sizes_are_not_comparable() -> None:
    a = replace(make_result(markup(), "eager"), image_size=(800, 1000))
    review = page(a, make_result(markup(), "vendor"))
    assert review.verdict == "not_comparable"
    assert review.reasons == ("page sizes differ: 800 x 1000 and 1000 x 800",)
    assert review.parts["verdict"] == 1500


def test_hostile_texts_are_compared_and_left_as_they_are() -> None:
    script = "<script>alert(1)</script>\x00\ud800"
    review = texts(markup(changed(1, text=script)))
    assert review.kinds == ("text",)
    assert review.blocks[0].text_a == script
