"""The command line as a user meets it: exit codes, one JSON document, one-line errors."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import main, parse
from dsocr_core.read.plan import RunPlan
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs import result_cache
from dsocr_core.runs.record import Recording
from tests.support.results import make_result

SHORT = ("--preset", "tiny", "--infer.max-new-tokens", "12")
Said = Callable[..., str]
Document = Callable[..., Any]


def test_compare_prints_one_json_document_and_passes(
    page: Path, checkpoint: Path, interpreter: Path, tmp_path: Path, document: Document
) -> None:
    vendor = [f"--vendor.trust-remote-code=[{checkpoint}]", "--vendor.interpreter", interpreter]
    options = ["--checkpoint", checkpoint, *vendor, *SHORT, "--out", tmp_path / "out"]
    found = document("compare", page, *options)
    assert (found["passed"], found["failed"]) == (1, 0)
    (row,) = found["pages"]
    expected = {
        "image": "page.png", "verdict": "identical", "tokens_equal": True, "input_parity": True,
        "error": None, "character_error_rate": 0,
    }  # fmt: skip
    assert expected.items() <= row.items()
    assert set(row["boxes"]) == {"a", "b", "matched"} and set(row["timings_ms"]) == {"eager", "vendor"}
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["tokens"] == 12
    assert (tmp_path / "out" / "vendor" / "predictions.jsonl").is_file()


def test_remote_code_of_a_foreign_directory_does_not_run_unasked(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", page, "--checkpoint", checkpoint, *SHORT, "--json", "--out", tmp_path / "out"]
    assert main([str(word) for word in words]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert out == "" and f"--vendor.trust-remote-code+={checkpoint}" in err.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_run_writes_artifacts_and_points_to_compare_without_boxes(
    page: Path, checkpoint: Path, tmp_path: Path, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        text = said("run", page, "--checkpoint", checkpoint, *SHORT, "--out", tmp_path / "out")
    assert "0 passed, 1 stopped at the token limit, 0 failed" in text
    (hint,) = (each.message for each in caplog.records if "no page of this run has a box" in each.message)
    found = parse(shlex.split(hint.partition("python -m dsocr_core ")[2]))[1]
    assert (found.images, found.checkpoint, found.preset) == ([str(page)], str(checkpoint), "tiny")
    assert found.infer.max_new_tokens == 12
    (info,) = (tmp_path / "out" / "viz").glob("*/info.json")
    assert json.loads(info.read_text())["source_image"] == str(page.resolve())


def test_a_resumed_run_skips_what_is_done(
    page: Path, checkpoint: Path, tmp_path: Path, said: Said, document: Document
) -> None:
    arguments, out = ("run", page, "--checkpoint", checkpoint, *SHORT), tmp_path / "out"
    assert "no such run directory" in said(*arguments, "--resume", out, code=BAD_USAGE)
    assert document(*arguments, "--out", out)["skipped"] == 0
    before = (out / "predictions.jsonl").read_bytes()
    assert "0 passed, 0 failed, 1 done before" in said(*arguments, "--resume", out)
    assert (out / "predictions.jsonl").read_bytes() == before
    said(*arguments, "--resume", out, "--out", out, code=BAD_USAGE)


@pytest.mark.parametrize(("command", "on"), [("run", "go on with --resume"), ("compare", "it is in")])
def test_a_cancelled_run_says_what_is_left_of_it(
    command: str, on: str, page: Path, checkpoint: Path, tmp_path: Path, said: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def cancelled(_: object, plan: RunPlan, __: object, runs: list[Recording], ___: object) -> None:
        plan.directory.mkdir(exist_ok=True)
        [history] = runs
        with history:
            read = make_result(backend="eager", image=page)
            history.add("page.png", result_cache.Comparison(OcrRequest(page, "tiny"), read))
            raise Cancelled

    monkeypatch.setattr("dsocr_core.read.run.read_run", cancelled)
    arguments = (command, page, "--checkpoint", checkpoint, "--out", tmp_path / "out")
    history, left = tmp_path / "history", f"{on} {tmp_path / 'out'}"
    text = said(*arguments, "--save", "--history", history, code=FAILED).replace(" ", "")
    (name,) = (path.name for path in (history / "runs").iterdir())
    words = f"error: cancelled; what was finished is recorded as run {name}; {left}"
    assert text == words.replace(" ", "")
    text = said(*arguments, code=FAILED).replace(" ", "")
    assert text == f"error: cancelled; {left}".replace(" ", "")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt  # while torch is imported, say

    monkeypatch.setattr(f"dsocr_core.cli.{command}.read", interrupted)
    assert said(*arguments, code=FAILED) == "error: cancelled"


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["run", "missing.png"], "missing.png"),
        (["run", "{page}", "--preset", "huge"], "huge"),
        (["run", "{page}", "--infer.max-new-tokens", "0"], "max_new_tokens"),
        (["run", "{page}", "--infer.max-new-tokens", "many"], "max_new_tokens"),
        (["run", "{page}", "--checkpoint", "nowhere"], "nowhere"),
        (["run", "{page}", "--prompt", "no image here"], "<image>"),
        (["run", "{page}", "--device", "tpu"], "tpu"),
        (["run", "{page}", "--dtype", "int8"], "--dtype: "),
        (["run", "{page}", "--attention", "flash_attention_2"], "flash"),
        (["run", "{page}", "--engine", "fast", "--device", "cpu"], "use --engine eager"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(
    arguments: list[str], cause: str, page: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(page=page) for argument in arguments]
    if "--checkpoint" not in filled:
        filled += ["--checkpoint", str(checkpoint)]
    assert main([*filled, "--json"]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and cause in err.replace("\n", "")


def test_bench_prints_tables_and_ends_with_one_json_line(
    checkpoint: Path, tmp_path: Path, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = ("bench", *SHORT[:2], "--size", "300x200", "--tokens", "3", "--repeat", "1", "--device", "cpu")
    words = (*bench, "--checkpoint", str(checkpoint))
    history = tmp_path / "history"
    assert main([*words, "--engine", "eager", "--save", "--history", str(history)]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert max(map(len, table)) <= 100 and any("prefill" in line for line in table)
    (eager,) = found["engines"]
    assert (eager["name"], eager["new_tokens"], eager["environment"]["engine"]) == ("eager", 3, "eager")
    (name,) = found["saved"]
    record = json.loads((history / "runs" / name / "run.json").read_text())
    assert record["command"].startswith("python -m dsocr_core bench --preset tiny")
    ranges = document(*words, "--nvtx-only")
    assert (ranges["engines"][0]["stages"], ranges["device"]["copy_bytes_per_s"]) == ({}, None)


def test_settings_come_from_yaml_and_options_win(
    page: Path, checkpoint: Path, tmp_path: Path, document: Document
) -> None:
    """For a profiler nothing is measured, and nothing of it is in the result cache."""
    config = tmp_path / "run.yaml"
    config.write_text(f"checkpoint: {checkpoint}\npreset: small\ninfer:\n  max_new_tokens: 5\n")
    words = ("run", "--config", config, page, "--preset", "tiny", "--out", tmp_path / "out", "--nvtx-only")
    (row,) = document(*words)["pages"]
    assert (row["tokens"], row["finish_reason"], row["timings_ms"]) == (5, "length", {"eager": {}})
    assert json.loads((tmp_path / "out" / "predictions.jsonl").read_text())["preset"] == "tiny"
    assert not (tmp_path / "runs").exists()


def test_a_pipe_gets_json_only(page: Path, checkpoint: Path, tmp_path: Path) -> None:
    """A real process: what the libraries print must not reach stdout."""
    command = [sys.executable, "-m", "dsocr_core", "run", page, "--checkpoint", checkpoint, *SHORT, "--json"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "out"], capture_output=True, text=True, cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONWARNINGS": "default"}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stopped_at_limit"] == 1
