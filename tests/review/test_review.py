"""Reviews as they are opened: one run, two runs, what is missing, what is shown of a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.review.keys import parse_key, review_key
from dsocr_core.review.review import Review, ReviewError, open_review, run_fact
from dsocr_core.runs.history import History, HistoryError
from tests.support.made_up_runs import record as plain_record
from tests.support.results import make_result
from tests.support.review_sides import BLOCKS, both, changed, markup, write

OTHER = markup(changed(2, text="the second paragraph of a page"))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """One for all tests: to open one takes longer than they do. Each calls its runs otherwise."""
    with History(tmp_path_factory.mktemp("h")) as history:
        yield history


def names(review: Review) -> list[tuple[str | None, str | None]]:
    pages = sorted(review.pages, key=lambda page: page.name)
    return [page.names for page in pages]


def test_a_run_with_both_backends(history: History) -> None:
    write(history, "both-1", {"p1": both(markup()), "p2": both(OTHER), "p3": both("", markup())})
    review = open_review(history, "both-1")
    assert (review.key, review.a.name, review.b.name) == ("both-1", "eager", "vendor")
    assert [page.name for page in review.pages] == ["p3", "p2", "p1"]
    assert review.page("p3").verdict == "differs"
    # The record's dtype and attention are of A alone.
    a, b = (replace(side, used={}) for side in (review.a, review.b))
    for name, value in (("dtype", "float32"), ("attention", "eager")):
        assert (run_fact(a, name), run_fact(b, name)) == (value, None)


def test_two_runs(history: History) -> None:
    write(history, "two-1", {"p1": {"eager": make_result(OTHER)}, "p2": {"eager": make_result(markup())}})
    write(history, "two-2", {"p1": both(markup()), "p3": both(markup())}, dtype="bfloat16")
    review = open_review(history, "two-1", "two-2")
    assert (review.key, review.a.name, review.b.name) == ("two-1~two-2", "two-1", "two-2")
    assert review.b.backend == "eager"
    assert names(review) == [("p1", "p1"), ("p2", None), (None, "p3")]
    kinds = {page.name: page.kinds for page in review.pages}
    assert kinds == {"p1": ("text",), "p2": ("absent",), "p3": ("absent",)}
    detail = review.detail("p2")
    assert review.page("p2").verdict == "not_comparable" and detail.b is None and detail.a is not None
    other = open_review(history, "two-1", "two-2", backend_b="vendor")
    assert (other.key, other.b.name) == ("two-1~two-2:vendor", "two-2 vendor")


def test_pages_find_each_other_by_content_and_by_name_without_suffix(
    history: History, tmp_path: Path
) -> None:
    images = [tmp_path / name for name in ("x.png", "y.png")]
    for number, image in enumerate(images):
        Image.new("RGB", (20, 10), (number, 0, 0)).save(image)
    of = [{"eager": make_result(markup(), image=image)} for image in images]
    plain = {"eager": make_result("a")}
    write(history, "paired-1", {"first.png": of[0], "second.png": of[1], "scan.png": plain})
    write(history, "paired-2", {"second.png": of[0], "other.png": of[1], "scan.jpg": plain})
    # A name says more than a content: the content of what is called second is a difference.
    review = open_review(history, "paired-1", "paired-2")
    scans, second = ("scan.png", "scan.jpg"), ("second.png", "second.png")
    assert names(review) == [("first.png", None), (None, "other.png"), scans, second]
    page = review.page("second.png")
    assert page.causes == () and page.report is not None
    assert {line.name: line.state for line in page.report.inputs}["image SHA-256"] == "differs"
    # Both results were made by hand with the same pixel hashes: then another file is the same page.
    assert (page.verdict, page.kinds) == ("identical", ())
    write(history, "paired-3", {"a.png": of[0], "b.png": of[1]})
    found = names(open_review(history, "paired-1", "paired-3"))
    assert found[:2] == [("first.png", "a.png"), ("scan.png", None)]


def test_pages_that_failed(history: History) -> None:
    failed = {"eager": "CUDA <out> of memory", "vendor": make_result(markup(), "vendor")}
    write(history, "failed-1", {"p1": failed})
    (page,) = open_review(history, "failed-1").pages
    assert (page.kinds, page.verdict, page.report) == (("failed",), "not_comparable", None)
    assert page.reasons == ("could not be read: A: CUDA <out> of memory",)
    assert page.b is not None and len(page.b.boxes) == len(BLOCKS)


def test_what_cannot_be_reviewed(history: History) -> None:
    write(history, "one-1", {"p1": {"eager": make_result(markup())}})
    with history.writer(plain_record("empty")):
        pass
    history.refresh()
    for arguments, cause in (
        ("one-1", "only the backend eager"), ("one-1 one-1", "only the backend eager"),
        ("one-1 empty", "no recorded page"), ("one-1 one-1 vendor", "no backend 'vendor'; it has eager"),
        ("no-such-run", "there is no run"),
    ):  # fmt: skip
        with pytest.raises((ReviewError, HistoryError), match=cause):
            open_review(history, *arguments.split())


def test_a_run_has_one_time_of_a_page_wherever_it_is_shown(history: History) -> None:
    """F14: the list of runs, its stages and B against A had three; stages' medians do not add up to it."""
    pages = {}
    for number, prefill in enumerate((10.0, 500.0, 90.0, 30.0, 70.0)):
        made = make_result(markup(), "eager")
        times = {"prefill": prefill, "decode": 40.0 * number}
        timings = (replace(each, milliseconds=times.get(each.stage, 1.0)) for each in made.timings)
        pages[f"p{number}"] = {"eager": replace(made, timings=tuple(timings))}
    write(history, "pace-1", pages)
    write(history, "pace-2", pages)
    [pace] = history.query("pace", run_ids=["pace-1"])[0].to_dict("records")
    total = open_review(history, "pace-1", "pace-2").stages.set_index("stage").loc["total"]
    assert pace["page_ms"] == total["median_a"] == total["median_b"] == 173.0


def test_the_settings_that_differ_are_those_the_pages_were_read_with(history: History) -> None:
    """F8: B ran in float32, and the report had a blank there."""
    pages = {"p1": both(markup())}
    pages["p1"]["eager"] = make_result(markup(), "eager", dtype="bfloat16")
    write(history, "used-1", pages, dtype="bfloat16", environment={"vendor": {"overridden": ""}})
    frame = open_review(history, "used-1").settings()
    rows = frame[frame["section"] == "run"].set_index("name")
    assert rows.loc["dtype", ["a", "b", "equal"]].tolist() == ["bfloat16", "float32", False]
    assert rows.loc["preset", ["a", "b", "equal"]].tolist() == ["small", "small", True]
    assert "overridden" not in set(frame[~frame["equal"].astype(bool)]["name"])


def test_keys_lead_back_and_other_keys_are_refused() -> None:
    for parts in (
        ("a", None, None, None), ("a.b", "c..d", None, None), ("a", "b", "eager", "vendor"),
        ("a", "a", "vendor", "eager"), ("a", "b", None, "vendor"),
    ):  # fmt: skip
        assert parse_key(review_key(*parts)) == parts
    assert review_key("a", "a") == "a"
    for key in ("", "~", "a~b~c", "../x", "a:", "a b", "a~", "x" * 300, "a:b:c"):
        with pytest.raises(ReviewError, match="names no review"):
            parse_key(key)
