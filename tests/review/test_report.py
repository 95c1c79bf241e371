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
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.main import main
from dsocr_core.reading.records import OcrResult, TopTwo
from dsocr_core.review.document import document, headline
from dsocr_core.review.html import html_report
from dsocr_core.review.junit import junit_report
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.history import History
from tests.support.paths import ROOT
from tests.support.results import make_result
from tests.support.review_sides import both, changed, markup, write

SCRIPT = "</pre></style><script>document.title='owned'</script><img src=x onerror=alert(1)>\x00\x1b[31m\ud800"
HOSTILE = markup(changed(1, text=SCRIPT, label="<b>bold</b>"))
Pages = dict[str, dict[str, OcrResult | str]]


def slowed(result: OcrResult | str, factor: float) -> OcrResult:
    assert isinstance(result, OcrResult)
    times = (replace(timing, milliseconds=timing.milliseconds * factor) for timing in result.timings)
    return replace(result, timings=tuple(times))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Nine pages: one hostile, one with a box that moved, one that failed; B is slower."""
    image = tmp_path_factory.mktemp("pages") / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    found = {f"p{number}": both(markup(), image=image) for number in range(9)}
    found["p1"] = both(HOSTILE, image=image)
    found["p2"] = both(markup(changed(1, box=(100, 190, 900, 290))), image=image)
    found["p3"]["eager"] = "could not <i>read</i> it"
    for results in found.values():
        results["vendor"] = slowed(results["vendor"], 1.31)
    return found


@pytest.fixture(scope="module")
def history(pages: Pages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("report")) as history:
        write(history, "run-1", pages)
        yield history


@pytest.fixture(scope="module")
def review(history: History) -> Review:
    """Nobody gives a verdict in it."""
    return open_review(history, "run-1")


@pytest.fixture
def judged(history: History, pages: Pages, request: pytest.FixtureRequest) -> Review:
    """The same pages in a run of the test's own, for verdicts."""
    write(history, request.node.name, pages)
    return open_review(history, request.node.name)


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


def test_the_document_counts_what_is_there(judged: Review) -> None:
    judged.verdicts.give("p0", "wrong", "ann", "boxes", "see there")
    judged.verdicts.give("p1", "same", "bob")
    values = json.loads(json.dumps(document(judged), allow_nan=False))
    assert values["headline"] == headline(judged)
    assert headline(judged).endswith(
        "speed inconclusive (one run a side: spread not known, record more), 3 of 9 pages changed, 3 fail"
    )
    assert (values["passed"], values["failed"], values["changed"], values["rejected"]) == (5, 4, 3, 1)
    # p1 has a text of its own, p2 a box that moved, p3 no result on one side.
    assert values["parity"] == {"identical": 6, "within_tolerance": 0, "differs": 2, "not_comparable": 1}
    assert values["ties"] == {"pages": 8, "divergences": 2, "ties": 0, "other_settings": 0, "finding": None}
    assert values["kinds"] == {"failed": 1, "relabelled": 1, "moved": 1, "text": 1}
    assert values["verdicts"] == {
        "same": 1, "acceptable": 0, "wrong": 1, "unsure": 0, "not reviewed": 7, "disagreement": 0,
        "reviewers": ["ann", "bob"],
    }  # fmt: skip
    rows = {row["image"]: row for row in values["pages"]}
    assert [row["image"] for row in values["pages"]][:3] == ["p3", "p1", "p2"]
    assert rows["p2"]["max_coordinate_difference_percent"] == pytest.approx(4000 / 999)
    assert rows["p3"]["boxes"] == {"a": None, "b": None, "matched": None}
    assert (rows["p3"]["verdict"], rows["p3"]["reasons"]) == (
        "not_comparable", ["could not be read: A: could not <i>read</i> it"]
    )  # fmt: skip
    assert (rows["p2"]["verdict"], rows["p0"]["verdict"]) == ("differs", "identical")
    assert rows["p0"]["reviews"]["ann"]["comment"] == "see there"
    assert {row["stage"] for row in values["stages"]} > {"decode", "total"}


# --- HTML ---------------------------------------------------------------------------------------


def test_the_html_needs_no_network_and_no_script(judged: Review) -> None:
    judged.verdicts.give("p1", "wrong", SCRIPT[:60].replace("\x00", ""), SCRIPT[:90], SCRIPT)
    page = html_report(judged)
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
    assert "://" not in page and "\0" not in page
    page.encode("utf-8")
    for words in (SCRIPT[20:64], "could not <i>read</i> it", "speed inconclusive (one run a side"):
        assert words in found.words


def test_comments_without_a_verdict_are_in_the_report(history: History, judged: Review) -> None:
    before = html_report(judged)
    assert "<h3>p0 " not in before  # identical: not shown until somebody says something of it
    said = {"id": "c", "time": "2026-01-01T00:00:00+00:00", "review": judged.key, "comment": "look <here>"}
    history.annotate(judged.key, "verdict", [("p0", "ann", json.dumps(said))])
    page = html_report(judged)
    assert "<h3>p0 " in page and "look &lt;here&gt;" in page
    [row] = [row for row in document(judged)["pages"] if row["image"] == "p0"]
    assert [(each["reviewer"], each["comment"]) for each in row["comments"]] == [("ann", "look <here>")]


def test_pictures_stay_within_their_bounds(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    def pictures() -> int:
        return sum(tag == "img" for tag, _ in _Elements(html_report(review)).tags)

    assert pictures() == 3
    assert sum(tag == "img" for tag, _ in _Elements(html_report(review, worst=1)).tags) == 1
    monkeypatch.setattr(html_module, "PICTURES_LIMIT", 100)
    assert pictures() == 0
    assert "No room for its picture." in html_report(review)


def test_the_report_names_digits_first_marks_letters_and_begins_with_its_readers_words(
    history: History,
) -> None:
    longer = "the last paragraph " * 20
    pages = {
        "p.png": both(markup(changed(1, text=f"{longer}340 g")), markup(changed(1, text=f"{longer}340 a,")))
    }
    write(history, "values", pages, created="2026-02-04T03:04:05+00:00")
    page = html_report(open_review(history, "values"), words="<i>hold</i> it back")
    assert page.index("&lt;i&gt;hold&lt;/i&gt; it back") < page.index("What differs")
    assert page.index("<b>") < page.index("<pre>")
    assert '<span class="letter">g</span>' in page and '<span class="letter">a,</span>' in page
    assert longer not in page and "…" in page
    assert "values are equal" in page


def recorded(text: str, backend: str, margin: float) -> OcrResult:
    """Logits that name their step, so that another step's would be seen."""
    top = (TopTwo((ord(letter), 81), (64.0 + n, 64.0 + n - margin)) for n, letter in enumerate(text))
    return replace(make_result(text, backend, dtype="bfloat16"), top_two=tuple(top))


OTHER = markup(changed(2, text="the second paragraph of a page"))
STEP = next(i for i, (a, b) in enumerate(zip(OTHER, markup(), strict=False)) if a != b)


def test_margins_ties_and_their_number_are_in_every_report(history: History) -> None:
    tie = {"eager": recorded(OTHER, "eager", 1.0), "vendor": recorded(markup(), "vendor", 0.0)}
    pages = {
        "tie": tie, "again": tie,
        "equal": {"eager": recorded(markup(), "eager", 1.0), "vendor": recorded(markup(), "vendor", 1.0)},
        "bug": {"eager": recorded(OTHER, "eager", 30.0), "vendor": make_result(markup(), dtype="bfloat16")},
        "before": {"eager": make_result(OTHER), "vendor": make_result(markup(), "vendor")},
    }  # fmt: skip
    pages["bug"]["vendor"] = replace(pages["bug"]["vendor"], backend="vendor")
    write(history, "ties", pages)  # type: ignore[arg-type]
    review = open_review(history, "ties")
    assert {page.name: [cause.name for cause in page.causes] for page in review.pages} == {
        "equal": [], "tie": ["tie"], "again": ["tie"], "bug": ["not a tie"], "before": [],
    }  # fmt: skip
    values, page = document(review), html_report(review)
    rows = {row["image"]: row for row in values["pages"]}
    best = 64.0 + STEP
    assert 256 <= best < 512, "where numbers of bfloat16 lie 2 apart"
    assert rows["tie"]["margins"] == {
        "a": {"ids": [ord(OTHER[STEP]), 81], "logits": [best, best - 1], "margin": 1.0},
        "b": {"ids": [ord(markup()[STEP]), 81], "logits": [best, best], "margin": 0.0},
        "dtype": "bfloat16", "ulps": 0.5, "tie": True,
    }  # fmt: skip
    assert (rows["bug"]["margins"]["b"], rows["bug"]["margins"]["tie"]) == (None, False)
    assert rows["equal"]["margins"] is None and rows["before"]["margins"] is None
    assert "not a tie: margin 30 of A and not recorded of B" in page and "a tie: margin 1 of A" in page
    assert values["ties"]["finding"].startswith(
        "2 of 4 divergences (on 5 pages) are ties. That many are a finding"
    )
    assert values["ties"]["finding"] in _Elements(page).words


# --- JUnit --------------------------------------------------------------------------------------


def test_junit_has_a_failure_an_error_or_none_by_the_verdicts(judged: Review) -> None:
    judged.verdicts.give("p0", "wrong", "ann", "", SCRIPT)
    judged.verdicts.give("p2", "acceptable", "ann")
    root = ElementTree.fromstring(junit_report(judged))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("9", "3", "1")
    cases = {case.get("name"): case for case in suite}
    assert sorted(cases) == [f"p{number}" for number in range(9)]
    outcomes = {name: [(part.tag, part.get("type")) for part in case][1:] for name, case in cases.items()}
    assert (outcomes["p0"], outcomes["p4"]) == ([("failure", "verdict")], [])
    assert outcomes["p1"] == outcomes["p2"] == [("failure", "parity")]
    assert outcomes["p3"] == [("error", "not comparable")]
    parity = {name: str(case[0][0].get("value")) for name, case in cases.items()}
    assert parity["p4"] == "identical"
    assert parity["p2"] == "differs; box moved: box 2 (text) by 4 % of the page's side"
    assert "4 %" in str(cases["p2"][1].get("message"))


# --- the command --------------------------------------------------------------------------------


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_the_exit_code_is_that_of_the_pages(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    location = history.storage.location
    for name in ("run-2", "run-3"):
        write(history, name, {"p": {"eager": make_result(markup())}})
    arguments = ("compare", "run-2", "run-3", "--history", location)
    assert run(*arguments) == OK
    assert "no times" not in capsys.readouterr().out
    open_review(history, "run-2", "run-3").verdicts.give("p", "wrong", "ann")
    assert run(*arguments) == FAILED
    assert "wrong 1" in capsys.readouterr().out


def test_usage_errors_are_one_line(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, cause in (
        (("nothing",), "no file or folder, and the history at"),
        (("run-1", "{page}"), "give pages, or one or two runs"),
        (("run-1", "run-1", "run-1"), "3 runs are given"),
        (("run-1", "--pages", "1"), "--pages is for pages, and recorded runs are given"),
        (("run-1", "--backend-a", "x"), "no backend 'x'"),
        (("run-1", "--html", "no/such/folder.html"), "cannot be written"),
        (("none.png",), "no such file"),
    ):
        given = [argument.format(page=ROOT / "data" / "samples" / "01-letter.png") for argument in arguments]
        assert run("compare", *given, "--history", history.storage.location) == BAD_USAGE
        words = " ".join(capsys.readouterr().out.split())
        assert words.startswith("error:") and cause in words
        assert "Traceback" not in words


def test_a_page_that_one_run_has_is_said_once_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with History(tmp_path) as history:
        write(history, "run-1", {name: {"eager": make_result(markup())} for name in ("p0", "p1", "p2")})
        write(history, "run-2", {name: {"eager": make_result(markup())} for name in ("p2", "p3")})
        review = open_review(history, "run-1", "run-2")
        values = document(review)
        assert (values["passed"], values["failed"], values["changed"]) == (1, 0, 0)
        assert (values["only_a"], values["only_b"], values["kinds"]) == (2, 1, {})
        assert values["parity"] == {"identical": 1, "within_tolerance": 0, "differs": 0, "not_comparable": 0}
        said = "0 of 1 page changed, none fails; 2 pages only in A, 1 page only in B"
        assert headline(review).endswith(said)
        suite = ElementTree.fromstring(junit_report(review))[0]
        counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert counts == ["4", "0", "0", "3"]
        assert [case.get("name") for case in suite if case.find("skipped") is not None] == ["p0", "p1", "p3"]
        page = html_report(review)
        assert page.count(said) == 1 and ">p3<" not in page
    assert main(["compare", "run-1", "run-2", "--history", str(tmp_path)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    with History(tmp_path) as history:
        review = open_review(history, "run-1", "run-2")
        review.verdicts.give("p0", "wrong", "ann", "", SCRIPT)
        suite = ElementTree.fromstring(junit_report(review))[0]
        assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["1", "0", "2"]
