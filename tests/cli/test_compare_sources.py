"""`compare` of pages and of recorded runs: the same verdicts and reports, whatever the source."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.cli.main import main

TEXTS = {"same": ("340 g of rice", "340 g of rice"), "other": ("340 g of rice", "310 g of rice")}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Pages, and beside them the texts of two programs."""
    for place in ("pages", "a", "b"):
        (tmp_path / place).mkdir()
    for name, texts in TEXTS.items():
        Image.new("RGB", (60, 40), "white").save(tmp_path / "pages" / f"{name}.png")
        for place, text in zip("ab", texts, strict=True):
            (tmp_path / place / f"{name}.md").write_text(text)
    return tmp_path / "pages"


def test_every_source_gives_the_same_verdicts_and_reports(
    pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, junit, history = (tmp_path / name for name in ("report.html", "report.xml", "history"))
    words = ["--html", html, "--junit", junit, "--history", history, "--json"]

    def reported(*arguments: object) -> dict[str, str]:
        """Each page's verdict in JSON, which JUnit and the HTML report have too."""
        assert main([*map(str, ["compare", *arguments, *words])]) == FAILED
        document = json.loads(capsys.readouterr().out)
        assert document["failed"] == 1 and "310" in html.read_text()
        verdicts = {Path(row["image"]).stem: row["verdict"] for row in document["pages"]}
        cases = ElementTree.parse(junit).getroot().iter("testcase")
        failed = {Path(case.get("name", "")).stem for case in cases if case.find("failure") is not None}
        assert failed == {name for name, verdict in verdicts.items() if verdict == "differs"}
        return verdicts

    expected = {"same": "within_tolerance", "other": "differs"}
    sides = ["--a", f"folder:{tmp_path / 'a'}", "--b", f"folder:{tmp_path / 'b'}", "--out"]
    assert reported(pages, *sides, tmp_path / "out") == expected
    assert not history.exists()  # a report is no reason to record a run
    assert reported(pages, *sides, tmp_path / "saved", "--save") == expected
    (run,) = (history / "runs").iterdir()
    assert reported(run.name) == reported(run) == reported(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give pages, or one or two runs of the history"),
        (["PAGES", "nowhere"], "'nowhere' is no file or folder"),
        (["PAGES", "--backend-a", "eager"], "--backend-a is for recorded runs, and pages are given"),
        (["PAGES", "--b", "fast", "--b", "eager", "--html", "x"], "give --b once"),
        (["PAGES", "--again"], "--again needs one run of the history"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    pages: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *(str(pages) if each == "PAGES" else each for each in arguments)]) == BAD_USAGE
    assert says in " ".join(capsys.readouterr().out.split())
