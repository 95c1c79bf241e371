"""Small inputs that once made the product say something wrong, run where they lie beside the project."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dsocr_core.cli.main import main
from tests.backends.endpoint.scripted_server import scripted_server
from tests.support.paths import ROOT, SAMPLES, SHARED

CASES = SHARED / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not here")
LETTER = SAMPLES / "01-letter.png"
Say = Callable[..., str]
SHORT = ("--preset", "tiny", "--infer.max-new-tokens", "4")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    def run(*arguments: object, own: bool = True) -> str:
        where = ("--out", tmp_path / "out") if own else ()
        code = main([*map(str, (*arguments, *where))])
        shown = capsys.readouterr()
        return f"exit {code} " + " ".join((shown.out + shown.err).split())

    return run


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("batch-bad-pdf", r"exit 1 .*01-letter\.png [01] 4 .*enc-user\.pdf.* needs a password.* 1 failed"),
        ("tiff-orientation", r"exit 0 .*0 failed"),
        ("multipage-tiff/fax.tif", r"fax\.tif#1 .*fax\.tif#2 "),
        ("folder-skips-unknown", r"01-letter\.png"),
        ("pdf-form-fields", r"exit 0 .*form\.pdf#1"),
    ],
)
def test_pages(say: Say, caplog: pytest.LogCaptureFixture, case: str, says: str) -> None:
    assert re.search(says, say("run", CASES / "inputs" / case, *SHORT))
    if case == "folder-skips-unknown":
        assert "not read: case.json, IMG_0002.HEIC, page2.j2k" in caplog.text


def test_an_answer_that_the_server_broke_off_is_no_page(say: Say) -> None:
    recorded = CASES / "inputs" / "endpoint-abort" / "abort.http"
    status, kind, body = recorded.read_bytes().split(b"\n", 2)
    models = {"data": [{"id": "deepseek-ai/DeepSeek-OCR"}]}
    with scripted_server(
        lambda reply, _: reply.write(body[1:], int(status), kind.decode()), models=models
    ) as server:
        shown = say("run", LETTER, *SHORT[:2], "--backend", f"endpoint:{server.address}")
    assert re.search(r"exit 1 .*cut off after 200 characters \(abort\)", shown)


def test_texts_of_other_programs(say: Say, tmp_path: Path) -> None:
    case = CASES / "inputs" / "folder-zero-based-pages"
    folder = f"folder:{case / 'pred'}"
    shown = say("compare", case / "paper.pdf", *SHORT[:2], "--a", folder, "--b", folder, "--b.name", "other")
    assert "2 passed, 0 failed" in shown and "of no page" not in shown
    crlf = CASES / "inputs" / "why-crlf"
    shutil.copy(crlf / "crlf.md", tmp_path / "01-letter.md")
    b = f"folder:{tmp_path}"
    assert "identical" in say("compare", crlf / "01-letter.png", "--preset", "small", "--b", b, own=False)


def test_checkpoints(say: Say, tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, CASES / "inputs/int-weights/make.py", ROOT, tmp_path / "int8"], capture_output=True
    )
    assert made.returncode == 0
    shown = say("run", LETTER, *SHORT, "--checkpoint", tmp_path / "int8")
    assert re.search(r"exit 2 .*stored as I8 without a scale", shown)


def test_an_upload_s_error_names_it_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsocr_core.base.errors import DsocrError
    from pages.widgets.shared import sources

    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(CASES / "hostile" / "upload-pdf-error-shows-server-path" / "gen.py"))
    monkeypatch.setattr(sources, "UPLOADS", tmp_path / "uploads")
    monkeypatch.setattr(sources, "RENDERED", tmp_path / "rendered")
    stored = sources.store_upload("userunit.pdf", (tmp_path / "userunit.pdf").read_bytes(), sources.UPLOADS)
    refused = pytest.raises(DsocrError, match=r"^userunit\.pdf: page 1 has ")
    with refused as error, sources.own_names():
        sources.typed_pages(str(stored), ()).take(0)
    assert str(tmp_path) not in str(error.value)
