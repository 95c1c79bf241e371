"""The Review page driven without a browser, on small runs with known differences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from dsocr_core.reading.clean import clean_pages
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import PageResults
from pages.widgets.pair import state as pair_state
from pages.widgets.review import address, queue
from pages.widgets.review import view as review_view
from pages.widgets.shared import resources, url_state
from tests.support.opened_page import address_of, bodies, checked, mounted, opened, words
from tests.support.results import make_result, of_pages
from tests.support.review_sides import BLOCKS, both, changed, markup, record, write

open_page = partial(opened, "review")
SCRIPT = "</div><script>document.title='owned'</script><img src=x onerror=alert(1)>"
MOVED, MISSING, RETOLD, FAILED = "moved.png", "missing.png", "text.png", "failed.png"
WORST_FIRST = [FAILED, MISSING, RETOLD, MOVED, "same-1.png", "same-2.png"]


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
        alone = {name: {"eager": sides["eager"]} for name, sides in pages.items()}
        write(made, "run-2", alone, created="2026-02-02T03:04:05+00:00")
    return folder / "history"


def queued(test: AppTest) -> list[str]:
    return [line["key"] for line in mounted(test, "gallery")["items"]]


# --- opening --------------------------------------------------------------------------------------


def test_the_newest_run_with_both_backends_is_open_worst_first(history: History) -> None:
    test = open_page()
    assert queued(test) == WORST_FIRST and address_of(test) == {}
    said = words(test)
    assert "6 pages: 1 not compared, text differs on 2, boxes differ on 1, same text on 2." in said
    # A page that one side could not read leaves it true that others differ.
    assert "0 of 6 reviewed" in said and "DIFFERS" in said
    readings = {item["key"]: item["readings"] for item in mounted(test, "gallery")["items"]}
    assert readings[RETOLD][1] and not readings["same-1.png"]


def test_where_there_are_examples_only_one_with_differences_is_open_and_its_cause_comes_first(
    seeds: History,
) -> None:
    test = open_page()
    said = words(test)
    assert "DIFFERS" in said and "One cause: the n-gram rule differs: 20 and 6." in said
    readings = {item["key"]: item["readings"] for item in mounted(test, "gallery")["items"]}
    assert readings["03-tall-notice.png"] == ["No running, no diving from the side.", "nothing"]
    runs = [seeds.record(run) for run in test.session_state["review values"]["review"].split("~")]
    assert len({(run.attention, run.preset) for run in runs}) == 1
    write(seeds, "mine", {"page.png": both(markup())})  # a run of one's own comes before them
    assert open_page().session_state["review values"]["review"] == "mine"


def test_on_a_page_without_boxes_no_place_is_said_to_lie_before_a_box(empty: History) -> None:
    write(empty, "mine", {"page.png": both("plain 21-30", "plain 21:30")})
    said = words(open_page(page="page.png"))
    assert "First different token: 8 of 11 and 11; the two best" in said


def test_a_link_opens_its_page_with_its_chips_and_tab(history: History) -> None:
    link: dict[str, Any] = {
        "review": "run-1", "page": MOVED, "mode": "2-up", "show": ["boxes"], "box": "3", "tab": "Details"
    }  # fmt: skip
    test = open_page(**link)
    data = mounted(test, "viewer")
    assert data["position"] == {"index": 0, "count": 1, "first": True, "last": True}
    assert data["image"]["id"].startswith(f"{MOVED}:1000x800")
    assert (data["mode"], data["selected"]) == ("2-up", 2)
    assert [pair["differs"] for pair in data["pairs"]] == [False, False, True, False, False]
    assert data["names"] == {"a": "A: eager, ours float32", "b": "B: vendor, published code float32"}
    assert address_of(test) == link | {name: [text] for name, text in link.items() if name != "show"}


def test_pages_of_one_run_alone_are_shown_where_a_chip_asks_for_them(own: History) -> None:
    run = {MOVED: both(markup()), "new-1.png": both(markup()), "new-2.png": both(markup())}
    write(own, "run-3", run, created="2026-02-03T03:04:05+00:00")
    test = open_page(review="run-3~run-1")
    assert queued(test) == [MOVED] and "1 page: boxes differ on 1." in words(test)
    chips = test.button_group(key="review show")
    assert chips.options == ["boxes 1", "only in A 2", "only in B 5", "not reviewed 1"]
    checked(chips.set_value(["boxes", "only in A", "only in B"]).run())
    assert len(queued(test)) == 8


@pytest.mark.parametrize(
    ("key", "message"),
    [("run-9", "run-9"), ("run-2", "give a second run to compare it with"), ("<script>", "names no review")],
)
def test_a_review_that_cannot_be_opened_says_why(history: History, key: str, message: str) -> None:
    test = open_page(review=key)
    assert message in words(test)
    assert queued(checked(test.button(key="review newest").click().run())) == WORST_FIRST


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_run_that_is_gone_or_damaged_is_not_shown_from_memory(own: History, how: str) -> None:
    first = open_page(review="run-1")
    assert not first.error
    if how == "deleted":
        own.trash(["run-1"])
        own.empty_trash()
    else:
        (Path(own.storage.location) / "runs" / "run-1" / "readings.parquet").write_bytes(b"words")
    for test in (first.run(), open_page(review="run-1")):  # in a new session too
        assert ("there is no run" if how == "deleted" else "is damaged") in test.error[0].value


# --- the page shown, and the queue ----------------------------------------------------------------


def test_a_document_in_one_prompt_is_shown_page_by_page(own: History) -> None:
    box, blocks = "<|det|>text [80, 60, 900, 200]<|/det|>", {}
    for backend, total in (("eager", "1,234.00"), ("vendor", "7,234.00")):
        text = f"<PAGE>\n{box}First page.\n<PAGE>\n{box}Total {total}\n{box}Thanks\n"
        blocks[backend] = of_pages(make_result(text, backend), (60, 40))
    write(own, "paper", {"paper.pdf#1-2": blocks}, created="2026-03-02T03:04:05+00:00")
    for sheet, count in (("1", 1), ("2", 2)):
        test = open_page(review="paper", page="paper.pdf#1-2", sheet=sheet)
        data = mounted(test, "viewer")
        assert len(data["pairs"]) == count
    assert [pair["differs"] for pair in data["pairs"]] == [True, False]
    assert "A reads 1,234.00, B 7,234.00." in words(test)


def test_chips_leave_the_pages_that_they_count(own: History) -> None:
    verdicts = resources.review("run-1").verdicts
    verdicts.give(MOVED, "same", "Ann")
    verdicts.give(MOVED, "wrong", "Ben")
    test = open_page()
    assert test.button_group(key="review show").options == [
        "not compared 1", "text 2", "boxes 1", "same text 2", "not reviewed 5", "disagreement 1"
    ]  # fmt: skip
    for chosen, shown in (
        (["text", "boxes"], [MISSING, RETOLD, MOVED]), (["boxes", "disagreement"], [MOVED]),
        (["not reviewed", "same text"], ["same-1.png", "same-2.png"]), ([], WORST_FIRST),
    ):  # fmt: skip
        checked(test.button_group(key="review show").set_value(chosen).run())
        assert queued(test) == shown
        assert address_of(test).get("show", []) == chosen


def session_of(monkeypatch: pytest.MonkeyPatch, history: History, state: dict[str, Any]) -> dict[str, Any]:
    """A session for callbacks, without a page around them."""
    values = {name: parameter.default for name, parameter in address.PARAMETERS.items()}
    values |= {"review": "run-1", "reviewer": "Ann"} | state
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
    session = session_of(monkeypatch, own, {"page": FAILED})
    presses = [
        {"n": 1, "act": "next", "subject": FAILED},
        {"n": 2, "act": "next", "subject": FAILED},
        {"n": 3, "act": "wrong", "subject": MISSING},
        {"n": 4, "act": "previous", "subject": MOVED},
        {"n": 5, "act": "delete everything", "subject": MOVED},
        {"n": 6, "act": "same", "subject": "nowhere.png"},
    ]
    values = session["review values"]
    for count, page in ((3, RETOLD), (6, MISSING)):
        session["review viewer"] = {"actions": presses[:count]}
        queue.take_actions()
        assert (values["page"], values["taken"]) == (page, count)
    assert "no page 'nowhere.png'" in values["problem"]
    given = resources.review("run-1").verdicts.current()
    assert {page: {name: row.verdict for name, row in rows.items()} for page, rows in given.items()} == {
        MISSING: {"Ann": "wrong"}
    }


# --- verdicts -------------------------------------------------------------------------------------


def test_a_verdict_waits_for_a_name_is_recorded_with_its_comment_and_undone(own: History) -> None:
    def said(test: AppTest) -> str:
        return " ".join(words(test).split())

    def say(test: AppTest, verdict: str) -> AppTest:
        return checked(test.button(key=f"review say {verdict}").click().run())

    verdicts = resources.review("run-1").verdicts
    verdicts.give(MOVED, "unsure", "Ben", "scale: hm")
    places = [*(test := open_page(page=MOVED)).main.children]
    test = say(test, "wrong")
    assert queue.NAME_FIRST in words(test) and [*test.main.children] == places
    checked(test.text_input(key="review reviewer").set_value("Ann  Bee").run())
    assert queue.NAME_FIRST not in words(test) and "you : wrong" in said(test)
    test.text_input(key=queue.comment_key(MOVED)).set_value("<b>off</b> by a tile")
    say(test, "wrong")
    *_, row = resources.review("run-1").verdicts.rows()
    assert (row.page, row.reviewer, row.verdict) == (MOVED, "Ann Bee", "wrong")
    assert row.comment == "<b>off</b> by a tile" and not any("<b>off" in body for body in bodies(test))
    assert "you : wrong · <b>off</b> by a tile" in said(test) and "Ben : unsure · scale: hm" in said(test)
    assert mounted(test, "viewer")["around"]["cookie"] == "dsocr_reviewer=Ann%20Bee"
    for _ in range(2):
        checked(test.button(key="review undo").click().run())
    assert "you : " not in said(test) and "Undid “wrong”" in words(test)
    assert list(resources.review("run-1").verdicts.current()[MOVED]) == ["Ben"]


def test_a_page_whose_source_is_gone_is_shown_in_its_own_size(own: History, tmp_path: Path) -> None:
    image = tmp_path / "large.png"
    Image.new("RGB", (3200, 1600), "white").save(image)
    clean = clean_pages(OcrRequest(image), [Image.open(image)])
    with own.writer(record("run-3")) as run:
        for result in both(markup(), image=image).values():
            assert isinstance(result, OcrResult)
            of_page = replace(result, image_size=(3200, 1600))
            run.add(PageResults("large.png", results=[of_page], clean=clean))
    image.unlink()
    own.refresh()
    review = open_review(own, "run-3")
    picture, size, note = review_view._picture(review, review.page("large.png"), 0)
    assert (size, note) == ((3200, 1600), "")  # what the boxes are drawn in
    assert (picture.width, picture.height) == (1600, 800)
