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
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest
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
    page: Path, checkpoint: Path, tmp_path: Path, said: Said
) -> None:
    words = ["compare", page, "--checkpoint", checkpoint, *SHORT, "--json", "--out", tmp_path / "out"]
    assert f"--vendor.trust-remote-code+={checkpoint}" in said(*words, code=BAD_USAGE).replace(" ", "")
    assert not (tmp_path / "out").exists()


def test_run_writes_artifacts_points_to_compare_and_a_resumed_one_skips_what_is_done(
    page: Path, checkpoint: Path, tmp_path: Path, said: Said, document: Document,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    words, out = ("run", page, "--checkpoint", checkpoint, *SHORT), tmp_path / "out"
    assert "no such run directory" in said(*words, "--resume", out, code=BAD_USAGE)
    with caplog.at_level(logging.WARNING):
        assert "0 passed, 1 stopped at the token limit, 0 failed" in said(*words, "--out", out)
    (hint,) = (each.message for each in caplog.records if "no page of this run has a box" in each.message)
    found = parse(shlex.split(hint.partition("python -m dsocr_core ")[2]))[1]
    assert (found.images, found.checkpoint, found.preset) == ([str(page)], str(checkpoint), "tiny")
    assert found.infer.max_new_tokens == 12
    (info,) = (out / "viz").glob("*/info.json")
    assert json.loads(info.read_text())["source_image"] == str(page.resolve())
    before = (out / "predictions.jsonl").read_bytes()
    assert "0 passed, 0 failed, 1 done before" in said(*words, "--resume", out)
    assert document(*words, "--resume", out)["skipped"] == 1
    assert (out / "predictions.jsonl").read_bytes() == before
    said(*words, "--resume", out, "--out", out, code=BAD_USAGE)


@pytest.mark.parametrize(("command", "on"), [("run", "go on with --resume"), ("compare", "it is in")])
def test_a_cancelled_run_says_what_is_left_of_it(
    command: str, on: str, page: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(_: object, plan: RunPlan, __: object, runs: list[Recording], ___: object) -> None:
        plan.directory.mkdir(exist_ok=True)
        [history] = runs
        with history:
            history.add("page.png", Comparison(OcrRequest(page, "tiny"), make_result("x", "eager", page)))
            raise Cancelled

    monkeypatch.setattr("dsocr_core.read.run.read_run", cancelled)
    history, left = tmp_path / "history", f"{on} {tmp_path / 'out'}"
    words = (command, page, "--out", tmp_path / "out")
    text = said(*words, "--save", "--history", history, code=FAILED)
    (name,) = (path.name for path in (history / "runs").iterdir())
    expected = f"error: cancelled; what was finished is recorded as run {name}; {left}"
    assert text.replace(" ", "") == expected.replace(" ", "")


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("run missing.png", "missing.png"),
        ("run PAGE --preset huge", "huge"),
        ("run PAGE --infer.max-new-tokens 0", "max_new_tokens"),
        ("run PAGE --infer.max-new-tokens many", "max_new_tokens"),
        ("run PAGE --checkpoint nowhere", "nowhere"),
        ("run PAGE --prompt text", "<image>"),
        ("run PAGE --device tpu", "tpu"),
        ("run PAGE --dtype int8", "--dtype: "),
        ("run PAGE --attention flash_attention_2", "flash"),
        ("run PAGE --engine fast --device cpu", "use --engine eager"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(
    words: str, cause: str, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.replace("PAGE", str(page)).split(), "--json"]) == BAD_USAGE
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


def test_settings_come_from_yaml_options_win_and_a_pipe_gets_json_only(
    page: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """A real process: what the libraries print must not reach stdout. For a profiler nothing is measured."""
    config = tmp_path / "run.yaml"
    config.write_text(f"checkpoint: {checkpoint}\npreset: small\ninfer:\n  max_new_tokens: 5\n")
    words = ("run", "--config", config, page, "--preset", "tiny", "--out", tmp_path / "out", "--nvtx-only")
    done = subprocess.run(
        [sys.executable, "-m", "dsocr_core", *words, "--json"], capture_output=True, text=True,
        cwd=PROJECT_ROOT, env=os.environ | {"PYTHONWARNINGS": "default", "DSOCR_RUNS": f"{tmp_path}/runs"},
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["pages"]
    assert (row["tokens"], row["finish_reason"], row["timings_ms"]) == (5, "length", {"eager": {}})
    assert json.loads((tmp_path / "out" / "predictions.jsonl").read_text())["preset"] == "tiny"
    assert not (tmp_path / "runs").exists()  # nothing of it is in the result cache
