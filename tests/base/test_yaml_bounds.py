"""Settings files of anybody: refused in one line before anything is made of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsocr_core.base.untrusted import Refused
from dsocr_core.base.yaml_bounds import check_file, check_text
from dsocr_core.cli.main import main

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
)

HOSTILE = {
    "aliases": (LAUGHS, "line 2: YAML with aliases"),
    "alias of itself": ("backends: &a [*a]", "line 1: YAML with aliases"),
    "merged aliases": ("a: &a {b: 1}\nb:\n  <<: *a", "line 3: YAML with aliases"),
    "deep in brackets": ("tolerance: " + "[" * 5000 + "]" * 5000, "nested deeper than 64"),
    "deep by indents": ("\n".join(" " * n + "a:" for n in range(300)), "nested deeper than 64"),
    "a key twice": ("preset: tiny\npreset: small", "line 2: 'preset' stands twice"),
    "a key twice below": ("infer:\n  exif: true\n  'exif': false", "line 3: 'exif' stands twice"),
    "not a number": ("pdf_dpi: .NaN", "line 1: .NaN is no number"),
    "tagged": ("pdf_dpi: !!float '.nan'", "line 1: YAML with tags is not read; leave !!float out"),
    "tagged and empty": ("preset: tiny\npdf_dpi: !!float ''", "line 2: YAML with tags"),
    "tagged as another": ("infer: !!set {exif}", "line 1: YAML with tags is not read; leave !!set out"),
    "an object": ("a: !!python/object/apply:os.system [id]", "leave !!python/object/apply:os.system out"),
    "without end": ("max_megapixels: -.inf", "line 1: -.inf is no number"),
    "huge": ("pdf_dpi: 1e400", "line 1: the number 1e400 is too large"),
    "many digits": ("pdf_dpi: " + "9" * 5000, "is too large"),
    "beyond 64 bits": ("pdf_dpi: 9223372036854775808", "is too large"),
    "base 60": ("pdf_dpi: 1" + ":1" * 50_000, "is too large"),
    "base 16": ("pdf_dpi: 0x" + "f" * 50_000, "is too large"),
    "tabs": ("infer:\n\texif: true", "line 2: found character that cannot start"),
    "zero bytes": ("preset: \0", "not YAML"),
    "cut off": ("infer: {exif: true", "not YAML"),
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_yaml_that_grows_or_means_two_things_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        check_text(text)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 300 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "preset: small\ninfer:\n  max_new_tokens: inf\n  ngram_whitelist: ['<td>', '</td>']",
        "# nothing but a comment",
        "prompt: 1.2.3.4\nhistory: 2026-01-02\npdf_dpi: 0x96\nmax_megapixels: 1e3\nb: 12ab",
        "prompt: '" + "9" * 5000 + "'",  # a text
        "backends: {one: {spec: eager}, two: {spec: eager}}",
    ],
)
def test_what_people_write_is_read(text: str) -> None:
    check_text(text)


def test_a_file_is_regular_small_and_utf8(tmp_path: Path) -> None:
    large, latin, pipe = tmp_path / "large.yaml", tmp_path / "latin.yaml", tmp_path / "pipe.yaml"
    with large.open("wb") as file:
        file.truncate(100 * 2**20)
    latin.write_bytes("prompt: Überschrift".encode("latin-1"))
    os.mkfifo(pipe)
    for file_, reason in (
        (large, "104,857,600 bytes; at most 262,144 are read"),
        (latin, "not UTF-8 text (byte 8)"),
        (pipe, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "none.yaml", "not there"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(Refused) as refused:
            check_file(file_)
        assert reason in str(refused.value)


def test_the_command_line_names_the_settings_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "run.yaml"
    settings.write_text(LAUGHS)
    assert main(["run", "--config", str(settings), "page.png"]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "--config" in shown and "YAML with aliases is not read" in shown and "Traceback" not in shown
