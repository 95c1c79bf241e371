"""The report of a review: values, HTML that can do nothing, JUnit XML; the command that writes them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

import dsocr_core.review.html as html_module
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.main import main
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.document import document, headline
from dsocr_core.review.html import html_report
from dsocr_core.review.junit import junit_report
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.history import History
from tests.support.paths import ROOT
from tests.support.results import make_result
from tests.support.review_sides import both, changed, markup, write

SCRIPT = "</pre></style><script>document.title='owned'</script><img src=x onerror=alert(1)>\x00\x1b[31m\ud800"
Pages = dict[str, dict[str, OcrResult | str]]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Nine pages: one hostile, one with a box that moved, one that failed."""
    image = tmp_path_factory.mktemp("pages") / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    found = {f"p{number}": both(markup(), image=image) for number in range(9)}
    found["p1"] = both(markup(changed(1, text=SCRIPT, label="<b>bold</b>")), image=image)
    found["p2"] = both(markup(changed(1, box=(100, 190, 900, 290))), image=image)
    found["p3"]["eager"] = "could not <i>read</i> it"
    return found


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("report")) as history:
        yield history


@pytest.fixture
def review(history: History, pages: Pages, request: pytest.FixtureRequest) -> Review:
    """The pages in a run of the test's own."""
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


def test_all_reports_count_pages_by_parity_and_by_the_reviewers(history: History, review: Review) -> None:
    review.verdicts.give("p0", "wrong", "ann", "boxes, see there")
    review.verdicts.give("p1", "same", "bob")
    review.verdicts.give("p2", "acceptable", "ann")
    said = {"id": "c", "time": "2026-01-01T00:00:00+00:00", "review": review.key, "comment": "look <here>"}
    history.annotate(review.key, "verdict", [("p4", "ann", json.dumps(said))])
    values = json.loads(json.dumps(document(review), allow_nan=False))
    assert values["headline"] == headline(review)
    assert headline(review).endswith(
        "speed inconclusive (one run a side; an interval needs 2 of each), 3 of 9 pages changed, 3 fail"
    )
    assert [values[name] for name in ("passed", "failed", "changed", "rejected")] == [5, 4, 3, 1]
    # p1 has a text of its own, p2 a box that moved, p3 no result on one side.
    assert values["parity"] == {"identical": 6, "within_tolerance": 0, "differs": 2, "not_comparable": 1}
    assert values["kinds"] == {"failed": 1, "relabelled": 1, "moved": 1, "text": 1}
    assert values["verdicts"] == {
        "same": 1, "acceptable": 1, "wrong": 1, "unsure": 0, "not reviewed": 6, "disagreement": 0,
        "reviewers": ["ann", "bob"],
    }  # fmt: skip
    rows = {row["image"]: row for row in values["pages"]}
    assert [*rows][:3] == ["p3", "p1", "p2"]
    assert rows["p2"]["max_coordinate_difference_percent"] == pytest.approx(4000 / 999)
    assert rows["p3"]["boxes"] == {"a": None, "b": None, "matched": None}
    assert rows["p3"]["reasons"] == ["could not be read: A: could not <i>read</i> it"]
    assert rows["p0"]["reviews"]["ann"]["comment"] == "boxes, see there"
    assert [each["comment"] for each in rows["p4"]["comments"]] == ["look <here>"]
    assert {row["stage"] for row in values["stages"]} > {"decode", "total"}

    (suite,) = ElementTree.fromstring(junit_report(review))
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["9", "3", "1"]
    cases = {str(case.get("name")): case for case in suite}
    outcomes = {name: [(part.tag, part.get("type")) for part in case][1:] for name, case in cases.items()}
    assert outcomes == {
        "p0": [("failure", "verdict")], "p1": [("failure", "parity")], "p2": [("failure", "parity")],
        "p3": [("error", "not comparable")], **{f"p{number}": [] for number in range(4, 9)},
    }  # fmt: skip
    parity = {name: str(case[0][0].get("value")) for name, case in cases.items()}
    assert parity["p4"] == "identical" and parity["p2"].startswith("differs; box moved: box 2 (text) by 4 %")

    page = html_report(review)
    assert "<h3>p4 " in page and "<h3>p5 " not in page and "look &lt;here&gt;" in page
    assert values["headline"] in _Elements(page).words


def test_the_html_needs_no_network_and_no_script(review: Review) -> None:
    review.verdicts.give("p1", "wrong", SCRIPT[:60].replace("\x00", ""), SCRIPT)
    page = html_report(review)
    found = _Elements(page)
    forbidden = {"script", "iframe", "object", "embed", "link", "base", "form", "a", "svg"}
    assert not forbidden & {tag for tag, _ in found.tags}
    for tag, attributes in found.tags:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("href", "style", "action")
        ]
        assert tag != "img" or str(attributes["src"]).startswith("data:image/jpeg;base64,")
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert str(policy).startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'")
    assert "://" not in page and "\0" not in page
    page.encode("utf-8")
    assert SCRIPT[20:64] in found.words and "could not <i>read</i> it" in found.words
    ElementTree.fromstring(junit_report(review))  # what XML does not have is not in it


def test_pictures_stay_within_their_bounds(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    def pictures(**options: int) -> int:
        return html_report(review, **options).count("<img ")

    assert (pictures(), pictures(worst=1)) == (3, 1)
    monkeypatch.setattr(html_module, "PICTURES_LIMIT", 100)
    assert pictures() == 0 and "No room for its picture." in html_report(review)


def test_the_report_names_digits_first_marks_letters_and_begins_with_its_readers_words(
    history: History,
) -> None:
    longer = "the last paragraph " * 20
    sides = (markup(changed(1, text=f"{longer}{end}")) for end in ("340 g", "340 a,"))
    write(history, "values", {"p.png": both(*sides)}, created="2026-02-04T03:04:05+00:00")
    page = html_report(open_review(history, "values"), words="<i>hold</i> it back")
    assert page.index("&lt;i&gt;hold&lt;/i&gt; it back") < page.index("What differs")
    assert page.index("<b>") < page.index("<pre>")
    assert '<span class="letter">g</span>' in page and '<span class="letter">a,</span>' in page
    assert longer not in page and "…" in page and "values are equal" in page


# --- the command --------------------------------------------------------------------------------


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_usage_errors_are_one_line(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    write(history, "run-1", {"p": both(markup())})
    for words, cause in (
        ("nothing", "there is no run"),
        (f"run-1 {ROOT}/data/samples/01-letter.png", "give pages, or one or two runs"),
        ("run-1 run-1 run-1", "give pages, or one or two runs"),
        ("run-1 --pages 1", "--pages is for pages, and recorded runs are given"),
        ("run-1 --backend-a x", "no backend 'x'"),
        ("run-1 --html no/such/folder.html", "no/such/folder.html: no such file or directory"),
        ("none.png", "no such file"),
    ):
        assert run("compare", *words.split(), "--history", history.storage.location) == BAD_USAGE
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith("error:") and cause in said and "Traceback" not in said


def test_a_page_that_one_run_has_fails_nothing_unless_a_reviewer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with History(tmp_path) as history:
        write(history, "run-1", {name: {"eager": make_result(markup())} for name in ("p0", "p1", "p2")})
        write(history, "run-2", {name: {"eager": make_result(markup())} for name in ("p2", "p3")})
        review = open_review(history, "run-1", "run-2")
        values = document(review)
        assert [values[name] for name in ("passed", "failed", "changed", "only_a", "only_b")] == [
            1, 0, 0, 2, 1
        ]  # fmt: skip
        said = "0 of 1 page changed, none fails; 2 pages only in A, 1 page only in B"
        assert headline(review).endswith(said) and html_report(review).count(said) == 1

        def counts() -> list[str | None]:
            suite = ElementTree.fromstring(junit_report(review))[0]
            return [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]

        assert counts() == ["4", "0", "0", "3"]
        assert run("compare", "run-1", "run-2", "--history", tmp_path) == OK
        assert said in " ".join(capsys.readouterr().out.split())
        review.verdicts.give("p0", "wrong", "ann", SCRIPT)
        assert counts() == ["4", "1", "0", "2"]
    assert run("compare", "run-1", "run-2", "--history", tmp_path) == FAILED
    assert "wrong 1" in capsys.readouterr().out
