"""The report of a review: values, HTML that can do nothing, JUnit XML; the command that writes them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

import dsocr_core.review.html as html_module
from dsocr_core.cli.main import main
from dsocr_core.console import BAD_USAGE, FAILED, OK
from dsocr_core.history.store import History
from dsocr_core.records import OcrResult
from dsocr_core.review.document import ratio_words
from dsocr_core.review.report import document, headline, html_report, junit_report
from dsocr_core.review.review import Review, open_review
from tests.support.results import make_result
from tests.support.review_sides import both, changed, markup, write

SCRIPT = "</pre></style><script>document.title='owned'</script><img src=x onerror=alert(1)>\x00\x1b[31m\ud800"
HOSTILE = markup(changed(1, text=SCRIPT, label="<b>bold</b>"))


def slowed(result: OcrResult | str, factor: float) -> OcrResult:
    assert isinstance(result, OcrResult)
    times = (replace(timing, milliseconds=timing.milliseconds * factor) for timing in result.timings)
    return replace(result, timings=tuple(times))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    image = tmp_path / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    pages = {}
    for number in range(9):
        results = both(markup(), image=image)
        if number == 1:
            results = both(HOSTILE, image=image)
        if number == 2:
            results = both(markup(changed(1, box=(100, 190, 900, 290))), image=image)
        if number == 3:
            results["ours"] = "could not <i>read</i> it"
        results["vendor"] = slowed(results["vendor"], 1.31)
        pages[f"p{number}"] = results
    with History(tmp_path / "h") as history:
        write(history, "run-1", pages)
        yield history


@pytest.fixture
def review(history: History) -> Review:
    return open_review(history, "run-1")


class _Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


# --- values -------------------------------------------------------------------------------------


def test_the_headline_says_speed_pages_and_failures(review: Review) -> None:
    assert headline(review) == "ours is 31 % faster than vendor, 3 of 9 pages changed, 2 fail"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.31, "31 % faster"),
        (1 / 1.31, "31 % slower"),
        (5.16, "5.16x faster"),
        (0.25, "4x slower"),
        (1, "0 % faster"),
    ],
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert ratio_words(ratio) == words


def test_the_document_counts_what_is_there(review: Review) -> None:
    review.verdicts.give("p0", "wrong", "ann", "boxes", "see there")
    review.verdicts.give("p1", "same", "bob")
    values = json.loads(json.dumps(document(review), allow_nan=False))
    assert (values["passed"], values["failed"], values["changed"], values["rejected"]) == (7, 2, 3, 1)
    assert values["kinds"] == {"failed": 1, "relabelled": 1, "moved": 1, "text": 1}
    assert values["verdicts"] == {
        "same": 1, "acceptable": 0, "wrong": 1, "unsure": 0, "not reviewed": 7, "reviewers": ["ann", "bob"]
    }  # fmt: skip
    rows = {row["image"]: row for row in values["pages"]}
    assert [row["image"] for row in values["pages"]][:3] == ["p3", "p2", "p1"]
    assert rows["p2"]["max_coordinate_difference_percent"] == pytest.approx(4000 / 999)
    assert rows["p3"]["boxes"] == {"a": None, "b": None, "matched": None}
    assert rows["p0"]["reviews"]["ann"]["comment"] == "see there"
    assert {row["stage"] for row in values["stages"]} > {"decode", "total"}


# --- HTML ---------------------------------------------------------------------------------------


def test_the_html_needs_no_network_and_no_script(review: Review) -> None:
    review.verdicts.give("p1", "wrong", SCRIPT[:60].replace("\x00", ""), SCRIPT[:90], SCRIPT)
    page = html_report(review)
    found = _Elements(page)
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "base", "form", "a", "svg"}
    for tag, attributes in found.tags:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("href", "style", "action")
        ]
        if tag == "img":
            assert str(attributes["src"]).startswith("data:image/jpeg;base64,")
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert "://" not in page
    page.encode("utf-8")
    assert "\0" not in page


def test_a_script_in_a_text_is_shown_as_text(review: Review) -> None:
    found = _Elements(html_report(review))
    assert "<script>document.title='owned'</script>" in found.words
    assert "could not <i>read</i> it" in found.words
    assert "ours is 31 % faster than vendor" in found.words


def test_pictures_stay_within_their_bounds(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    def pictures() -> int:
        return sum(tag == "img" for tag, _ in _Elements(html_report(review)).tags)

    assert pictures() == 3
    assert sum(tag == "img" for tag, _ in _Elements(html_report(review, worst=1)).tags) == 1
    monkeypatch.setattr(html_module, "PICTURES_LIMIT", 100)
    assert pictures() == 0
    assert "No room for its picture." in html_report(review)


# --- JUnit --------------------------------------------------------------------------------------


def test_the_junit_report_counts_wrong_pages_as_failures(review: Review) -> None:
    review.verdicts.give("p0", "wrong", "ann", "", SCRIPT)
    review.verdicts.give("p2", "acceptable", "ann")
    root = ElementTree.fromstring(junit_report(review))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("9", "2", "1")
    cases = {case.get("name"): case for case in suite}
    assert sorted(cases) == [f"p{number}" for number in range(9)]
    outcomes = {name: [(part.tag, part.get("type")) for part in case] for name, case in cases.items()}
    assert outcomes["p0"] == [("properties", None), ("failure", "verdict")]
    assert outcomes["p2"] == [("properties", None), ("failure", "parity")]
    assert outcomes["p3"] == [("error", "not compared")]
    assert outcomes["p1"] == outcomes["p4"] == []
    assert "4 %" in str(cases["p2"][1].get("message"))


# --- the command --------------------------------------------------------------------------------


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_compare_gives_the_numbers_of_the_review(
    history: History, review: Review, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = history.storage.location
    files = ("--html", tmp_path / "r.html", "--junit", tmp_path / "r.xml")
    assert run("compare", "run-1", "--history", place, "--json", *files) == FAILED
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads(json.dumps(document(review)))
    assert (tmp_path / "r.html").read_text() == html_report(review)
    assert (tmp_path / "r.xml").read_text() == junit_report(review)
    assert run("compare", Path(place) / "runs" / "run-1") == FAILED
    words = capsys.readouterr().out
    assert "7 passed, 2 failed" in words and "31 % faster" in words and "Traceback" not in words


def test_the_exit_code_is_that_of_the_pages(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    place = history.storage.location
    for name in ("run-2", "run-3"):
        write(history, name, {"p": {"ours": make_result(markup())}})
    arguments = ("compare", "run-2", "run-3", "--history", place)
    assert run(*arguments) == OK
    assert "no times" not in capsys.readouterr().out
    open_review(history, "run-2", "run-3").verdicts.give("p", "wrong", "ann")
    assert run(*arguments) == FAILED
    assert "wrong 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("nothing",), "no file, and the history at"),
        (("run-1", "{page}"), "give pages, or one or two runs"),
        (("run-1", "run-1", "run-1"), "3 runs are given"),
        (("{page}", "--html", "x.html"), "--html is for recorded runs, and pages are given"),
        (("run-1", "--pages", "1"), "--pages is for pages, and recorded runs are given"),
        (("run-1", "--backend-a", "x"), "no backend 'x'"),
        (("run-1", "--truth", "none.json"), "none.json: cannot be read"),
        (("run-1", "--html", "no/such/folder.html"), "cannot be written"),
        (("none.png",), "no such file"),
    ],
)
def test_usage_errors_are_one_line(
    history: History,
    tmp_path: Path,
    arguments: tuple[str, ...],
    cause: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [argument.format(page=tmp_path / "page.png") for argument in arguments]
    assert run("compare", *given, "--history", history.storage.location) == BAD_USAGE
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("error:") and cause in words
    assert "Traceback" not in words
