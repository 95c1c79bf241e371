"""The Review page driven without a browser, on small runs with known differences."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from PIL import Image
from streamlit.testing.v1 import AppTest

from dsocr_core.reading.clean import clean_pages
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.results import PageResults
from pages.widgets.pair import state as pair_state
from pages.widgets.review import address, queue
from pages.widgets.review import view as review_view
from pages.widgets.shared import resources, url_state
from tests.support.opened_page import address_of, bodies, checked, mounted, opened, words
from tests.support.review_sides import BLOCKS, both, changed, markup, record, write

open_page = partial(opened, "review")
SCRIPT = "</div><script>document.title='owned'</script><img src=x onerror=alert(1)>"
MOVED, MISSING, RETOLD, FAILED = "moved.png", "missing.png", "text.png", "failed.png"
WORST_FIRST = [FAILED, RETOLD, MISSING, MOVED, "same-1.png", "same-2.png"]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    image = folder / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    pages = {
        "same-1.png": both(markup(), image=image),
        MOVED: both(markup(changed(2, box=(100, 340, 900, 440))), image=image),
        RETOLD: both(markup(changed(1, text=SCRIPT)), image=image),
        MISSING: both(markup((BLOCKS[0], *BLOCKS[3:])), image=image),
        FAILED: {"eager": f"could not read it: {SCRIPT}", "vendor": both(markup())["vendor"]},
        "same-2.png": both(markup(), image=image),
    }
    with History(folder / "history") as made:
        write(made, "run-1", pages)
        write(made, "run-2", {name: {"eager": sides["eager"]} for name, sides in pages.items()},
              created="2026-02-02T03:04:05+00:00")  # fmt: skip
    return folder / "history"


@pytest.fixture(scope="module")
def shared(made_once: Path) -> Iterator[History]:
    with History(made_once) as made:
        yield made
        prepared()


@pytest.fixture
def own(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    shutil.copytree(made_once, tmp_path / "history")
    with History(tmp_path / "history") as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        yield made
        resources.prefetcher().submit(lambda: None).result()


def prepared() -> None:
    """When what is prepared beside the pages is done, and no review holds its history any longer."""
    resources.prefetcher().submit(lambda: None).result()
    st.cache_resource.clear()


def queued(test: AppTest) -> list[str]:
    return [line["key"] for line in mounted(test, "gallery")["items"]]


def say(test: AppTest, verdict: str) -> AppTest:
    return checked(test.button(key=f"review say {verdict}").click().run())


def named(test: AppTest, name: str) -> AppTest:
    return checked(test.text_input(key="review reviewer").set_value(name).run())


# --- opening --------------------------------------------------------------------------------------


def test_the_newest_run_with_both_backends_is_open_worst_first(history: History) -> None:
    test = open_page()
    assert queued(test) == WORST_FIRST
    assert address_of(test) == {}
    said = words(test)
    assert "6 pages: 1 not compared, 1 text, 2 boxes, 2 same text." in said and "0 of 6 reviewed" in said
    readings = {item["key"]: item["readings"] for item in mounted(test, "gallery")["items"]}
    assert readings[RETOLD][1] and not readings["same-1.png"]
    page = open_page(page=FAILED)
    assert mounted(page, "viewer")["position"] == {"index": 0, "count": 6, "first": True, "last": False}
    checked(page.button(key="review all pages").click().run())
    assert queued(page) == WORST_FIRST


def test_where_there_are_examples_only_one_with_differences_is_open_and_its_cause_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History(tmp_path / "own", SEED_LOCATION) as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        test = open_page()
        a, b = test.session_state["review values"]["review"].split("~")
        assert "DIFFERS" in words(test) and "One cause: the n-gram rule differs: size 20 and 6." in words(
            test
        )
        runs = {run: made.record(run) for run in (a, b)}
        assert (runs[a].attention, runs[a].preset) == (runs[b].attention, runs[b].preset)
        write(made, "mine", {"page.png": both(markup())})  # a run of one's own comes before them
        assert open_page().session_state["review values"]["review"] == "mine"
        prepared()


def test_a_link_opens_its_page_with_its_chips_and_tab(history: History) -> None:
    link = {
        "review": "run-1",
        "page": MOVED,
        "mode": "swipe",
        "show": ["boxes"],
        "box": "3",
        "tab": "Details",
    }
    test = open_page(**link)
    data = mounted(test, "viewer")
    assert data["position"] == {"index": 1, "count": 2, "first": False, "last": True}
    assert data["image"]["id"].startswith(f"{MOVED}:1000x800")
    assert (data["mode"], data["selected"]) == ("swipe", 2)
    assert address_of(test) == {
        name: [*value] if isinstance(value, list) else [value] for name, value in link.items()
    }


def test_pages_of_one_run_alone_are_one_line_and_come_after_real_differences(
    own: History, tmp_path: Path
) -> None:
    run = {MOVED: both(markup()), "new-1.png": both(markup()), "new-2.png": both(markup())}
    write(own, "run-3", run, created="2026-02-03T03:04:05+00:00")
    test = open_page(review="run-3~run-1")
    assert queued(test) == [MOVED]
    said = words(test)
    assert "1 page: 1 boxes." in said
    chips = test.button_group(key="review show")
    assert chips.options == ["boxes 1", "only in A 2", "only in B 5", "not reviewed 1"]
    checked(chips.set_value(["boxes", "only in A", "only in B"]).run())
    assert len(queued(test)) == 8
    assert resources.review("run-3~run-1").pages[0].name == MOVED  # the report's order too


def test_runs_are_chosen_in_the_sidebar(history: History) -> None:
    test = open_page(page=MOVED, show="boxes")
    checked(test.selectbox(key="review b").set_value("run-2").run())
    assert address_of(test)["review"] == ["run-1~run-2"]
    assert not {"show", "page"} & address_of(test).keys()
    checked(test.selectbox(key="review b").set_value("").run())
    assert queued(test) == WORST_FIRST


@pytest.mark.parametrize(
    ("key", "message"),
    [("run-9", "run-9"), ("run-2", "give a second run to compare it with"), ("<script>", "names no review")],
)
def test_a_review_that_cannot_be_opened_says_why(history: History, key: str, message: str) -> None:
    test = open_page(review=key)
    assert message in words(test)
    assert test.selectbox(key="review a").options  # another one can be chosen
    assert queued(checked(test.button(key="review newest").click().run())) == WORST_FIRST


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_run_that_is_gone_or_damaged_is_not_shown_from_memory(own: History, how: str) -> None:
    first = open_page(review="run-1")
    assert not first.error
    run = Path(own.storage.location) / "runs" / "run-1"
    if how == "deleted":
        own.trash(["run-1"])
        own.empty_trash()
    else:
        (run / "readings.parquet").write_bytes(b"words")
    for test in (first.run(), open_page(review="run-1")):  # in a new session too
        assert ("there is no run" if how == "deleted" else "is damaged") in test.error[0].value


def test_an_empty_history_offers_the_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "empty") as empty:
        monkeypatch.setattr(resources, "history", lambda: empty)
        test = open_page()
        assert "Nothing to review yet" in words(test)
        assert {"Go to Compare", "Import runs"} <= {button.label for button in test.button}


# --- the page shown ----------------------------------------------------------------------------


def test_a_moved_box_is_moved_on_both_sides_of_the_viewer(history: History) -> None:
    data = mounted(open_page(page=MOVED), "viewer")
    assert [pair["state"] for pair in data["pairs"]] == ["matched", "matched", "moved", "matched", "matched"]
    assert [pair["differs"] for pair in data["pairs"]] == [False, False, True, False, False]
    assert 0.2 < data["pairs"][2]["iou"] < 0.9
    assert data["names"] == {"a": "A: eager, ours float32", "b": "B: vendor, published code float32"}
    assert data["sides"]["b"]["summary"].startswith("5 boxes")
    assert {key["key"] for key in data["around"]["keys"]} == set("sawuzrm")


@pytest.mark.parametrize(
    ("tab", "expected"),
    [
        ("Differences", "1 of 5 blocks differ"),
        ("Cause", "No trace of this page"),
        ("Details", "✓ equal, ✗ differs"),
    ],
)
def test_every_tab_says_something(history: History, tab: str, expected: str) -> None:
    test = open_page(page=MOVED, tab=tab)
    assert expected in words(test)
    assert address_of(test).get("tab", ["Differences"]) == [tab]


# --- the queue ------------------------------------------------------------------------------------


def test_chips_leave_the_pages_that_they_count(own: History) -> None:
    verdicts = resources.review("run-1").verdicts
    verdicts.give(MOVED, "same", "Ann")
    verdicts.give(MOVED, "wrong", "Ben")
    test = open_page()
    chips = test.button_group(key="review show")
    assert chips.options == [
        "not compared 1", "text 1", "boxes 2", "same text 2", "not reviewed 5", "disagreement 1"
    ]  # fmt: skip
    for chosen, left in (
        (["text", "boxes"], [RETOLD, MISSING, MOVED]), (["boxes", "disagreement"], [MOVED]),
        (["not reviewed", "same text"], ["same-1.png", "same-2.png"]), ([], WORST_FIRST),
    ):  # fmt: skip
        checked(test.button_group(key="review show").set_value(chosen).run())
        assert queued(test) == left
        assert address_of(test).get("show", []) == chosen


def standard() -> dict[str, Any]:
    """What a session holds to begin with."""
    return {name: parameter.default for name, parameter in address.PARAMETERS.items()}


def moved_on(monkeypatch: pytest.MonkeyPatch, history: History, state: dict[str, Any]) -> dict[str, Any]:
    """A session for callbacks, without a page around them."""
    values = standard() | {"review": "run-1", "reviewer": "Ann"} | state
    widgets = {f"review {name}": values.pop(name) for name in ("reviewer", "show")}
    session = {"review values": values, **widgets}
    review = open_review(history, "run-1")
    monkeypatch.setattr(resources, "review", lambda key: review)
    for module in (queue, url_state, pair_state):
        monkeypatch.setattr(module, "st", SimpleNamespace(session_state=session))
    return session


def test_every_press_counts_once_and_for_the_page_it_was_shown_with(
    own: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = moved_on(monkeypatch, own, {"page": FAILED})
    presses = [
        {"n": 1, "act": "next", "subject": FAILED},
        {"n": 2, "act": "next", "subject": FAILED},
        {"n": 3, "act": "wrong", "subject": MISSING},
        {"n": 4, "act": "previous", "subject": MOVED},
        {"n": 5, "act": "delete everything", "subject": MOVED},
        {"n": 6, "act": "same", "subject": "nowhere.png"},
    ]
    session["review viewer"] = {"actions": presses[:3]}
    queue.take_actions()
    assert session["review values"]["page"] == MISSING
    session["review viewer"] = {"actions": presses}
    queue.take_actions()
    assert session["review values"]["page"] == RETOLD
    assert session["review values"]["taken"] == 6
    assert "no page 'nowhere.png'" in session["review values"]["problem"]
    given = resources.review("run-1").verdicts.current()
    assert {page: {name: row.verdict for name, row in rows.items()} for page, rows in given.items()} == {
        MISSING: {"Ann": "wrong"}
    }


def test_a_name_that_comes_with_the_verdicts_counts_whatever_became_of_its_field(
    own: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = moved_on(monkeypatch, own, {"page": MOVED, "reviewer": ""})
    presses = [{"n": 1, "act": "same", "subject": MOVED}, {"n": 2, "act": "named", "subject": "Eve"}]
    for count in (1, 2, 2):
        session["review viewer"] = {"actions": presses[:count]}
        queue.take_actions()
    assert session["review reviewer"] == "Eve"
    assert session["review values"]["problem"] == ""
    given = resources.review("run-1").verdicts.current()
    assert given[MOVED]["Eve"].verdict == "same"


def test_a_page_that_left_the_queue_keeps_its_neighbours(
    own: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = moved_on(monkeypatch, own, {"page": MOVED, "show": ["not reviewed"]})
    queue.act_on("same", MOVED)
    here = queue.queue_of(resources.review("run-1"))
    assert (here.position, len(here.pages)) == (-1, 5)
    assert (here.neighbour(-1).name, here.neighbour(1).name) == (MISSING, "same-1.png")  # type: ignore[union-attr]
    queue.act_on("next", MOVED)
    assert session["review values"]["page"] == "same-1.png"


# --- verdicts -------------------------------------------------------------------------------------


def test_a_verdict_needs_a_name_and_is_recorded_with_its_cause_and_comment(own: History) -> None:
    test = open_page(page=MOVED)
    assert queue.NAME_FIRST in words(say(test, "wrong"))
    named(test, "Ann  Bee")  # the verdict that waited is given under the name
    (row,) = resources.review("run-1").verdicts.rows()
    assert (row.page, row.reviewer, row.verdict) == (MOVED, "Ann Bee", "wrong")
    assert queue.NAME_FIRST not in words(test)
    test.text_input(key=queue.comment_key(MOVED)).set_value("<b>off</b> by a tile")
    say(test, "wrong")
    *_, row = resources.review("run-1").verdicts.rows()
    assert (row.page, row.reviewer, row.verdict) == (MOVED, "Ann Bee", "wrong")
    assert (row.label, row.comment) == ("", "<b>off</b> by a tile")
    assert "you : wrong · <b>off</b> by a tile" in " ".join(words(test).split())
    assert not any("<b>off" in body for body in bodies(test))
    assert mounted(test, "viewer")["around"]["cookie"] == "dsocr_reviewer=Ann%20Bee"
    grid = open_page()
    line = next(line for line in mounted(grid, "gallery")["items"] if line["name"] == MOVED)
    assert line["verdict"] == "wrong" and "1 of 6 reviewed" in words(grid)


def test_two_reviewers_and_an_undo(own: History) -> None:
    resources.review("run-1").verdicts.give(MOVED, "unsure", "Ben", "scale", "hm")
    test = named(open_page(page=MOVED), "Ann")
    say(test, "same")
    assert "Ben : unsure · scale · hm" in " ".join(words(test).split())
    assert "you : same" in " ".join(words(test).split())
    checked(test.button(key="review undo").click().run())
    assert "you : same" not in " ".join(words(test).split())
    assert "Undid “same”" in words(test)
    assert list(resources.review("run-1").verdicts.current()[MOVED]) == ["Ben"]


def test_everything_can_be_taken_away(own: History) -> None:
    test = open_page()
    labels = [button.proto.label for button in test.get("download_button")]
    assert labels == ["Report as HTML", "Verdicts as CSV"]
    test.session_state["review details"] = True
    checked(test.run())
    assert "Speeds are those of whole pages" in words(test) and test.dataframe


def test_a_page_whose_source_is_gone_is_shown_in_its_own_size(own: History, tmp_path: Path) -> None:
    image = tmp_path / "large.png"
    Image.new("RGB", (3200, 1600), "white").save(image)
    [clean] = clean_pages(OcrRequest(image), [Image.open(image)])
    with own.writer(record("run-3")) as run:
        for result in both(markup(), image=image).values():
            assert isinstance(result, OcrResult)
            run.add(PageResults("large.png", results=[replace(result, image_size=(3200, 1600))]))
            clean.write(run.directory)
    image.unlink()
    own.refresh()
    review = open_review(own, "run-3")
    picture, size, note = review_view._picture(review, review.page("large.png"), 0)
    assert (size, note) == ((3200, 1600), "")  # what the boxes are drawn in
    assert (picture.width, picture.height) == (1600, 800)
