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

import pytest

import dsocr_core.runs.result_cache as results
from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import main, parse
from dsocr_core.read.plan import RunPlan
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.recording import Recording
from tests.support.results import make_result

FAST = ("--preset", "tiny", "--infer.max-new-tokens", "12")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_compare_prints_one_json_document_and_passes(
    page: Path, checkpoint: Path, interpreter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor = [f"--vendor.trust-remote-code=[{checkpoint}]", "--vendor.interpreter", interpreter]
    options = ["--checkpoint", checkpoint, *vendor, *FAST, "--json", "--out", tmp_path / "out"]
    code = run("compare", page, *options)
    document = json.loads(capsys.readouterr().out)
    assert code == OK
    assert (document["passed"], document["failed"]) == (1, 0)
    (row,) = document["pages"]
    assert row["image"] == "page.png"
    assert row["verdict"] == "identical"
    assert row["tokens_equal"] is True
    assert row["input_parity"] is True
    assert row["error"] is None
    assert row["character_error_rate"] == 0
    assert set(row["boxes"]) == {"a", "b", "matched"}
    assert set(row["timings_ms"]) == {"eager", "vendor"}
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["tokens"] == 12
    assert (tmp_path / "out" / "vendor" / "predictions.jsonl").is_file()


def test_remote_code_of_a_foreign_directory_does_not_run_unasked(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("compare", page, "--checkpoint", checkpoint, *FAST, "--json", "--out", tmp_path / "out")
    captured = capsys.readouterr()
    assert (code, captured.out) == (BAD_USAGE, "")
    assert f"--vendor.trust-remote-code+={checkpoint}" in captured.err.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_run_writes_artifacts_and_points_to_compare_without_boxes(
    page: Path,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        code = run("run", page, "--checkpoint", checkpoint, *FAST, "--out", tmp_path / "out")
    assert code == OK
    assert "0 passed, 1 stopped at the token limit, 0 failed" in capsys.readouterr().out
    (hint,) = (
        record.message for record in caplog.records if "no page of this run has a box" in record.message
    )
    found = parse(shlex.split(hint.partition("python -m dsocr_core ")[2]))[1]
    assert (found.images, found.checkpoint, found.preset) == ([str(page)], str(checkpoint), "tiny")
    assert found.infer.max_new_tokens == 12
    (info,) = (tmp_path / "out" / "viz").glob("*/info.json")
    assert json.loads(info.read_text())["source_image"] == str(page.resolve())


def test_a_resumed_run_skips_what_is_done(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = ("run", page, "--checkpoint", checkpoint, *FAST), tmp_path / "out"
    assert run(*arguments, "--resume", out) == BAD_USAGE  # there is none yet
    assert "no such run directory" in " ".join(capsys.readouterr().out.split())
    assert run(*arguments, "--out", out, "--json") == OK
    assert json.loads(capsys.readouterr().out)["skipped"] == 0
    before = (out / "predictions.jsonl").read_bytes()
    assert run(*arguments, "--resume", out) == OK
    assert "0 passed, 0 failed, 1 done before" in capsys.readouterr().out
    assert (out / "predictions.jsonl").read_bytes() == before
    assert run(*arguments, "--resume", out, "--out", out) == BAD_USAGE


@pytest.mark.parametrize(("command", "on"), [("run", "go on with --resume"), ("compare", "it is in")])
def test_a_cancelled_run_says_what_is_left_of_it(
    command: str,
    on: str,
    page: Path,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def cancelled(_: object, plan: RunPlan, __: object, runs: list[Recording], ___: object) -> None:
        plan.directory.mkdir(exist_ok=True)
        [history] = runs
        with history:
            read = make_result(backend="eager", image=page)
            history.add("page.png", results.Comparison(OcrRequest(page, "tiny"), read))
            raise Cancelled

    monkeypatch.setattr("dsocr_core.read.run.read_run", cancelled)
    arguments = (command, page, "--checkpoint", checkpoint, "--out", tmp_path / "out")
    history = tmp_path / "history"
    assert run(*arguments, "--save", "--history", history) == FAILED
    shown = "".join(capsys.readouterr().out.split())
    (name,) = (path.name for path in (history / "runs").iterdir())
    left = f"{on} {tmp_path / 'out'}"
    words = f"error: cancelled; what was finished is recorded as run {name}; {left}"
    assert shown == "".join(words.split())
    assert run(*arguments) == FAILED
    assert "".join(capsys.readouterr().out.split()) == "".join(f"error: cancelled; {left}".split())


def test_an_interrupt_before_there_is_work_is_one_line(
    page: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens yet while torch is imported."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dsocr_core.cli.run.read", interrupted)
    assert said("run", page, code=FAILED) == "error: cancelled"


def test_a_run_for_a_profiler_measures_nothing(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        "run", page, "--checkpoint", checkpoint, *FAST, "--out", tmp_path / "out", "--nvtx-only", "--json"
    )
    (row,) = json.loads(capsys.readouterr().out)["pages"]
    assert (code, row["tokens"], row["timings_ms"]) == (OK, 12, {"eager": {}})
    assert not (tmp_path / "runs").exists()  # nothing of it is in the result cache


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
    assert run(*filled, "--json") == BAD_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert cause in captured.err.replace("\n", "")


BENCH = ("bench", *FAST[:2], "--size", "300x200", "--tokens", "3", "--repeat", "1", "--device", "cpu")


def test_bench_prints_tables_and_ends_with_one_json_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history"
    code = run(*BENCH, "--checkpoint", checkpoint, "--engine", "eager", "--save", "--history", history)
    *table, last = capsys.readouterr().out.splitlines()
    document = json.loads(last)
    assert code == OK
    assert max(map(len, table)) <= 100 and any("prefill" in line for line in table)
    (eager,) = document["engines"]
    assert (eager["name"], eager["new_tokens"], eager["environment"]["engine"]) == ("eager", 3, "eager")
    (name,) = document["saved"]
    record = json.loads((history / "runs" / name / "run.json").read_text())
    assert record["command"].startswith("python -m dsocr_core bench --preset tiny")

    assert run(*BENCH, "--checkpoint", checkpoint, "--nvtx-only", "--json") == OK
    document = json.loads(capsys.readouterr().out)
    assert (document["engines"][0]["stages"], document["device"]["copy_bytes_per_s"]) == ({}, None)


def test_settings_come_from_yaml_and_options_win(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"checkpoint: {checkpoint}\npreset: small\ninfer:\n  max_new_tokens: 5\n")
    code = run("run", "--config", config, page, "--preset", "tiny", "--json", "--out", tmp_path / "out")
    row = json.loads(capsys.readouterr().out)["pages"][0]
    assert (code, row["tokens"], row["finish_reason"]) == (OK, 5, "length")
    prediction = json.loads((tmp_path / "out" / "predictions.jsonl").read_text())
    assert prediction["preset"] == "tiny"


def test_a_pipe_gets_json_only(page: Path, checkpoint: Path, tmp_path: Path) -> None:
    """A real process: what the libraries print must not reach stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "dsocr_core", "run", page, "--checkpoint", checkpoint, *FAST, "--json",
         "--out", tmp_path / "out"],
        capture_output=True, text=True, cwd=PROJECT_ROOT, env=os.environ | {"PYTHONWARNINGS": "default"},
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == OK, done.stderr
    assert json.loads(done.stdout)["stopped_at_limit"] == 1
