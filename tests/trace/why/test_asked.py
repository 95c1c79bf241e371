"""B by a specification of any backend, asked once for all pages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dsocr_core.runs.result_cache as results
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.parsing import names_backend
from dsocr_core.cli.main import main
from dsocr_core.page.documents import Page
from dsocr_core.settings import Settings
from dsocr_core.trace.why.reference import asked
from tests.support.planted_causes import made_pages
from tests.support.scripted_server import TEXT, scripted_server, streamed

SHORT = ("--preset", "tiny", "--prompt", "free_ocr", "--device", "cpu", "--infer.max-new-tokens", "64")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six times the same line: the published n-gram rule changes what is written."""
    monkeypatch.setattr(results, "RUNS_DIRECTORY", tmp_path / "runs")
    return made_pages(tmp_path)[0].path


@pytest.mark.parametrize(
    ("choice", "backend"),
    [
        ("eager", True), ("vendor", True), ("endpoint:http://h/v1", True), ("folder:out", True),
        ("command:a {image} {out}", True), ("mine", True), ({"spec": "out", "dtype": "float32"}, True),
        ("out", False), ("20261101-101010-abc", False), ("eager.md", False), ("runs/eager", False),
    ],
)  # fmt: skip
def test_a_backend_is_told_from_what_one_has_left(choice: str, backend: bool) -> None:
    assert names_backend(choice, {"mine": "eager"}) is backend


def test_an_engine_with_settings_of_its_own_is_b(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--b", "eager", "--b.infer.no-repeat-ngram-size", "35")
    assert main(["why", str(page), *SHORT, *own, "--json"]) == OK
    found = json.loads(capsys.readouterr().out)["pages"][0]
    assert (found["b"], found["causes"], found["explained"]) == ("eager-2", ["ngram-35"], True)
    facts = {line["name"]: (line["a"], line["b"], line["state"]) for line in found["facts"]}
    assert facts["n-gram size"] == ("20", "35", "differs")
    assert facts["quantisation"] == ("none", "none", "equal")
    assert facts["attention"] == ("eager", "eager", "equal")


def test_a_server_tells_nothing_of_its_prompt_and_weights(page: Path) -> None:
    with scripted_server(streamed()) as server:
        settings = Settings(device="cpu", b={"spec": f"endpoint:{server.address}", "name": "eager"}, a="fast")
        with asked(settings) as other_of:
            first, second = other_of(Page(page, "one")), other_of(Page(page, "two"))
    assert first.name == "eager" and first.text == second.text == TEXT
    assert (first.prompt, first.inputs, first.quantisation) == (None, None, None)


def test_a_program_and_a_folder_are_b(page: Path, tmp_path: Path) -> None:
    program = "import pathlib, sys; pathlib.Path(sys.argv[1], 'a.md').write_text('said')"
    command = f'command:{sys.executable} -c "{program}" {{out}} {{image}}'
    with asked(Settings(device="cpu", b=command)) as other_of:
        assert other_of(Page(page, page.name)).text == "said"
    left = tmp_path / "left"
    left.mkdir()
    (left / f"{page.stem}.md").write_text("left")
    with asked(Settings(device="cpu", b=f"folder:{left}")) as other_of:
        assert other_of(Page(page, page.name)).text == "left"
        with pytest.raises(DsocrError, match="other"):
            other_of(Page(tmp_path / "strip-0.png", "other.png"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--a", "vendor", "--b", "eager"), "--a is vendor: only our engines try causes"),
        (("--b.dtype", "float32"), "--b.dtype comes before --b"),
        (("--b", "out", "--b.dtype", "float32"), "backend 'out' is not known"),
        (("--b", "nothing"), "'nothing' is no file or directory"),
        (("--b", "eager", "--pages-together"), "DeepSeek-OCR reads one image a prompt"),
        (("--b", "folder:.", "--pages-together"), "folder reads one page a prompt"),
        (("--b", "eager", "--pages", "2"), "none of the given files has several pages"),
    ],
)
def test_what_cannot_be_is_one_line(
    page: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], says: str
) -> None:
    assert main(["why", str(page), *SHORT, *given]) in (BAD_USAGE, FAILED)
    out, err = capsys.readouterr()
    text = " ".join((out + err).split())
    assert says in text and "Traceback" not in text
