"""`compare` of pages, of recorded runs and of folders: the same verdicts and reports, whatever the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.cli.main import main

TEXTS = {"same": ("340 g of rice", "340 g of rice"), "other": ("340 g of rice", "310 g of rice")}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Pages, and the texts of two programs."""
    places = tuple(tmp_path / name for name in ("pages", "a", "b"))
    for place in places:
        place.mkdir()
    for name, texts in TEXTS.items():
        Image.new("RGB", (60, 40), "white").save(places[0] / f"{name}.png")
        for place, text in zip(places[1:], texts, strict=True):
            (place / f"{name}.md").write_text(text)
    return places[0], places[1], places[2]


def reported(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> dict[str, str]:
    """Each page's verdict in JSON, which JUnit and the HTML report have too."""
    html, junit = tmp_path / "report.html", tmp_path / "report.xml"
    given = ["compare", *map(str, arguments), "--html", str(html), "--junit", str(junit), "--json"]
    assert main(given) == FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == 1 and "310" in html.read_text()
    verdicts = {Path(row["image"]).stem: row["verdict"] for row in document["pages"]}
    cases = ElementTree.parse(junit).getroot().iter("testcase")
    failed = {Path(case.get("name", "")).stem for case in cases if case.find("failure") is not None}
    assert failed == {name for name, verdict in verdicts.items() if verdict == "differs"}
    return verdicts


def test_every_source_gives_the_same_verdicts_and_reports(
    folders: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages, a, b = folders
    history = ["--history", tmp_path / "history"]
    sides = ["--a", f"folder:{a}", "--b", f"folder:{b}"]
    expected = {"same": "within_tolerance", "other": "differs"}
    assert reported(capsys, tmp_path, pages, *sides, "--out", tmp_path / "out", *history) == expected
    assert not (tmp_path / "history").exists()  # a report is no reason to record a run, or to name one
    main(["compare", f"folder:{a}", f"folder:{b}", "--junit", str(tmp_path / "x.xml")])
    assert "recorded as run" not in capsys.readouterr().out
    assert reported(capsys, tmp_path, f"folder:{a}", f"folder:{b}", *history, "--save") == expected
    (run,) = (tmp_path / "history" / "runs").iterdir()
    assert reported(capsys, tmp_path, run.name, *history) == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["folder:{a}"], "give two folders of texts, or pages and --b folder:"),
        (["folder:{a}", "{pages}"], "give two folders of texts"),
        (
            ["folder:{a}", "folder:{b}", "--pages", "1"],
            "--pages is for pages, and folders of texts are given",
        ),
        (["{pages}", "--backend-a", "eager"], "--backend-a is for recorded runs, and pages are given"),
        (["{pages}", "--b", "fast", "--b", "eager", "--html", "x"], "give --b once"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    folders: tuple[Path, Path, Path], arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages, a, b = folders
    assert main(["compare", *(each.format(pages=pages, a=a, b=b) for each in arguments)]) == BAD_USAGE
    assert says in " ".join(capsys.readouterr().out.split())


def test_a_text_that_a_folder_lacks_or_has_twice_fails_alone(
    folders: tuple[Path, Path, Path], document: Callable[..., Any]
) -> None:
    _, a, b = folders
    (b / "other.md").write_text(TEXTS["other"][0])
    (b / "same.png.md").write_text("another")
    _, same = document("compare", f"folder:{a}", f"folder:{b}", code=FAILED)["pages"]
    assert same["error"] == "folder-2: has 2 texts of that name"
    for file in ("same.md", "same.png.md"):
        (b / file).unlink()
    other, same = document("compare", f"folder:{a}", f"folder:{b}", code=FAILED)["pages"]
    assert other["verdict"] == "within_tolerance"
    assert (same["verdict"], same["error"]) == ("not_comparable", "folder-2: has no text of that name")
