"""`compare` of pages, of recorded runs, and of a run that is read again as A."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.cli.compare_runs import batch_of
from dsocr_core.cli.main import main
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import Readings, readings
from tests.cli.conftest import draw
from tests.support.results import make_result
from tests.trace.why.planted_causes import page_of_lines

TOKENS = 12
Again = Callable[..., Any]


@pytest.fixture(scope="module")
def recorded(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A history with one run over two pages, and the run's id."""
    folder = tmp_path_factory.mktemp("pages")
    pages = [draw(folder / name) for name in ("one.png", "two.png")]
    words = ["run", *pages, "--checkpoint", checkpoint, "--preset", "tiny", "--infer.max_new_tokens", TOKENS]
    words += ["--save", "--history", folder / "history", "--out", folder / "out"]
    assert main([str(word) for word in words]) == 0
    with History(folder / "history") as opened:
        (run_id,) = opened.runs()["run_id"]
    return folder / "history", run_id


@pytest.fixture
def again(recorded: tuple[Path, str], document: Callable[..., Any], tmp_path: Path) -> Again:
    def read(*more: object, code: int = 0) -> Any:
        where = ("--history", recorded[0], "--out", tempfile.mkdtemp(dir=tmp_path))
        return document("compare", recorded[1], *more, "--again", *where, code=code)

    return read


def tokens(history: Path, run_id: str) -> dict[str, Sequence[int]]:
    with History(history) as opened:
        return {
            page: result.token_ids or () for (page, _), result in readings(opened, run_id).results.items()
        }


def test_an_unchanged_run_is_identical(recorded: tuple[Path, str], again: Again) -> None:
    """The settings are the run's, and `--save` records the second reading under them."""
    found = again("--save")
    assert (found["passed"], found["failed"]) == (2, 0)
    assert all(row["verdict"] == "identical" and row["tokens_equal"] for row in found["pages"])
    with History(recorded[0]) as history:
        (made,) = {*history.runs()["run_id"]} - {recorded[1]}
        assert history.record(made).settings["infer"]["max_new_tokens"] == TOKENS
    assert tokens(recorded[0], made) == tokens(*recorded)


def test_one_changed_weight_is_named_by_page_and_token(
    again: Again, checkpoint: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(checkpoint, changed)
    for file in changed.glob("*.safetensors"):
        weights = load_file(file)
        if "model.norm.weight" in weights:
            weights["model.norm.weight"][0] += 4.0
            save_file(weights, file, {"format": "pt"})
    found = again("--checkpoint", changed, "--dtype", "bfloat16", code=FAILED)
    assert found["failed"] == 2 and all(row["first_divergence"] is not None for row in found["pages"])
    assert "dtype" in {row["name"] for row in found["settings"] if not row["equal"]}  # the command line's


def test_the_cause_of_another_text_is_found(tmp_path: Path, document: Callable[..., Any]) -> None:
    """On the pages that differ: with B as a backend, with two recorded runs, and with one read again."""
    page, where = page_of_lines(tmp_path / "lines-0.png"), ("--history", tmp_path / "h")
    short = ("--preset", "tiny", "--prompt", "free_ocr", "--device", "cpu", "--infer.max-new-tokens", "64")
    b = ("--b", "eager", "--b.infer.no-repeat-ngram-size", "35")
    pair = ("compare", page, *short, "--a", "eager", *b, "--out", tmp_path / "out", "--save")
    commands = [(*pair, "--why", "1", *where)]
    for number in range(3):
        files = [tmp_path / "r.html", tmp_path / "r.xml"]
        found = document(*commands[number], "--html", files[0], "--junit", files[1], code=FAILED)
        # Each place names what was reproduced, and no cause that was only likely.
        cause = {"cause": "reproduced", "words": "B is reproduced exactly with n-gram 35"}
        assert [row["causes"] for row in found["pages"]] == [[cause]]
        for report in map(Path.read_text, files):
            assert f"cause: {cause['words']}" in report and "likely cause" not in report.lower()
        (why,) = found["why"]["pages"]
        assert (why["causes"], why["explained"]) == (["ngram-35"], True)
        facts = {line["name"]: (line["a"], line["b"], line["state"]) for line in why["facts"]}
        assert facts["n-gram size"] == ("20", "35", "differs")
        with History(tmp_path / "h") as history:
            run = history.runs()["run_id"].iloc[-1]
            causes = [each.causes for each in open_review(history, run).pages]
            assert [[each.document() for each in of_page] for of_page in causes] == [[cause]]
        second = (run, "--again", "--a", "eager", "--backend-b", "eager-2")
        commands += [("compare", run, "--why", "1", *where), ("compare", *second, "--why", "1", *where)]


def test_pages_are_read_together_as_they_were() -> None:
    """The backend that is compared decides, and of its pages the most; an imported run may say anything."""
    for batches, found in (
        (("512", "512", None), 512), ((None, None, "4"), 1), (("-3",), 1), (("many",), 1), (("9" * 9,), 512)
    ):  # fmt: skip
        made = {
            (f"{n}.png", "fast"): replace(make_result(""), environment={"batch": batch} if batch else {})
            for n, batch in enumerate(batches)
        }
        made["other.png", "eager"] = replace(make_result(""), environment={"batch": "8"})
        assert (batch_of(Readings(made), "fast"), batch_of(Readings(made), "eager")) == (found, 8)


def test_a_page_is_read_from_its_own_content(recorded: tuple[Path, str], again: Again) -> None:
    picture = recorded[0].parent / "two.png"
    content = picture.read_bytes()
    picture.write_bytes(content + b" ")
    try:
        two, one = again(code=FAILED)["pages"]
    finally:
        picture.write_bytes(content)
    assert (one["verdict"], two["verdict"]) == ("identical", "not_comparable")
    assert "is not there any more, or is another" in json.dumps(two)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("none-such",), "there is no run 'none-such'; see: dsocr history list"),
        (("RUN", "--backend-b", "vendor"), "has no backend 'vendor'; it has eager"),
        (("RUN", "PAGE"), "--again needs one run of the history"),
        (("RUN", "--preset", "base"), "--preset is not for --again"),
    ],
)
def test_what_cannot_be_read_again_is_said(
    recorded: tuple[Path, str], page: Path, said: Callable[..., str], words: Sequence[str], problem: str
) -> None:
    names = {"RUN": recorded[1], "PAGE": page}
    where = ("--again", "--history", recorded[0], "--out", page.parent / "out")
    assert problem in said("compare", *(names.get(word, word) for word in words), *where, code=BAD_USAGE)


# --- every source ---------------------------------------------------------------------------------


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
