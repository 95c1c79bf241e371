"""Several pages in one prompt: what one result of theirs becomes in a run, and who refuses them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import dsocr_core.runs.result_cache as results
from dsocr_core.cli.main import main
from dsocr_core.engine.page import PreparedPage
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.run import read_run
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.results import readings_in
from dsocr_core.settings import Settings
from tests.read.test_report import document
from tests.support.results import make_result
from tests.support.sessions import StandIn, session_of

SIZES = [(16, 12), (20, 30), (40, 40)]
BLOCK = "<|det|>text [0, 0, 999, 999]<|/det|>"


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RUNS_DIRECTORY", tmp_path / "runs")
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A directory that names the model; nothing else of it is asked for."""
    folder = tmp_path / "unlimited"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["UnlimitedOCRForCausalLM"]}')
    return folder


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"page{number}.png" for number in range(len(SIZES))]
    for path, size in zip(paths, SIZES, strict=True):
        Image.new("RGB", size, "white").save(path)
    return paths


class Engine(StandIn):
    """Reads one page fewer than there are, after a word of its own."""

    def prepare(self, _: OcrRequest, opened: PreparedPage) -> PreparedPage:
        return opened

    def recognize(self, request: OcrRequest, *_: Any, **__: Any) -> OcrResult:
        text = "Well: " + "".join(f"<PAGE>{BLOCK}page {n}" for n in range(1, len(request.images)))
        made = make_result(text, image_size=SIZES[0])
        return replace(made, request=request, more_sizes=tuple(SIZES[1:]))


def test_a_run_has_one_row_of_the_pages_and_says_what_is_missing(
    checkpoint: Path, pages: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    session = session_of(Settings(device="cpu", checkpoint=str(checkpoint)), tmp_path / "results", Engine())
    report = read_run([session], RunPlan(tuple(pages), out, together=3))
    [row] = document(report)["pages"]
    assert (report.passed, report.failed) == (1, 0)
    assert row["notes"] == [
        "eager: 2 pages came back of 3", "eager: 5 characters before the first <PAGE>",
    ]  # fmt: skip
    assert {Image.open(file).size for file in (out / "clean").iterdir()} == set(SIZES)
    found = readings_in(out).results
    [result] = found.values()
    assert list(found) == [("page0.png+2", "eager")]
    assert result.sizes == tuple(SIZES) and result.request.images == tuple(pages)
    assert [(box.page, box.x2, box.y2) for box in result.boxes] == [(0, 16, 12), (1, 20, 30)]
    assert len({file.sha256 for file in (result.request.file, *result.request.more_files) if file}) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run {page} --pages-together", "a prompt of DeepSeek-OCR takes at most 1"),
        ("run {page} --pages-together --checkpoint {model} --backend folder:{folder}",
         "folder reads one page a prompt: leave --pages-together out"),
        ("compare {page} --pages-together 2 --checkpoint {model} --b endpoint:http://x",
         "endpoint reads one page a prompt: leave --pages-together out"),
    ],
)  # fmt: skip
def test_who_cannot_read_pages_together_says_so_in_one_line(
    words: str, said: str, checkpoint: Path, pages: list[Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    names = {"page": pages[0], "model": checkpoint, "folder": tmp_path}
    given = [word.format(**names) for word in words.split()]
    assert main([*given, "--out", str(tmp_path / "o")]) == 2
    out, error = capsys.readouterr()
    assert said in " ".join((out + error).split()) and "Traceback" not in out + error
