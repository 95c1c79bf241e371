"""The command line as a user meets it: exit codes, one JSON document, one-line errors."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import build_parser, main, parse
from dsocr_core.cli.options import Parser, chosen_arguments, take_sides
from dsocr_core.read.plan import RunPlan
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.history import History
from dsocr_core.runs.record import Recording
from tests.support.made_up_runs import record, timing, write_run
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
        ("run PAGE --backend.dtype float32", "comes before --backend"),
        ("compare PAGE --b.dtype float32 --b eager", "--b.dtype comes before --b"),
        ("compare", "give pages, or one or two runs of the history"),
        ("compare PAGE nowhere", "'nowhere' is no image, PDF or folder of them"),
        ("compare PAGE --backend-a eager", "--backend-a is for recorded runs, and pages are given"),
        ("compare PAGE --b fast --b eager --html x", "give --b once"),
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


def test_a_command_that_asked_duckdb_ends_without_a_word_on_stderr(tmp_path: Path) -> None:
    """In a process of its own: DuckDB speaks when one ends."""
    command = [sys.executable, "-m", "dsocr_core", "history", "list", "--history", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT_ROOT, timeout=120, check=True)
    assert done.stdout and done.stderr == ""


# --- options --------------------------------------------------------------------------------------


HEAVY = ("torch", "transformers", "pandas", "duckdb", "pyarrow", "numpy", "PIL", "streamlit")
HELP = "from dsocr_core.cli.main import build_parser; build_parser()"
PAGES = """
import importlib, pkgutil, pages.widgets
for module in pkgutil.walk_packages(pages.widgets.__path__, "pages.widgets."):
    importlib.import_module(module.name)
"""


def parsers(parser: Parser, name: str = "dsocr") -> Iterator[tuple[str, Parser]]:
    """Every parser with the words that lead to it."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from parsers(below, f"{name} {word}")


def test_every_command_and_option_has_a_sentence_and_no_object_of_the_program() -> None:
    for name, parser in parsers(build_parser()):
        assert parser.description and parser.description[0].isupper(), name
        shown_options = re.findall(r"(?m)^  (?:-\w, )?--(?!help)", parser.format_help())
        assert len(shown_options) <= 12, f"{name}: its help does not fit on a screen"
        parser.whole = True
        text = parser.format_help()
        parser.whole = False
        assert not re.search("0x[0-9a-f]{6}|<function|<lambda|<class|type: ", text), name
        assert len(text.split("\n\n")[0].splitlines()) < 5, f"{name}: its first lines have options"


@pytest.mark.parametrize(("code", "heavy"), [(HELP, HEAVY), (PAGES, ("torch",))], ids=["help", "pages"])
def test_help_loads_nothing_heavy_and_the_pages_no_torch(code: str, heavy: tuple[str, ...]) -> None:
    """A page is there before a model is."""
    loaded = f"{code}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_settings_go_into_the_backend_before_them() -> None:
    words = (
        "compare --preset tiny page.png --a eager --a.dtype float32 --b=endpoint:http://h/v1 "
        "--b.flavour vllm --b.body.vllm_xargs.ngram_size=30 --b vendor --b fast --b.attention sdpa"
    )
    _, chosen = parse(words.split())
    assert (chosen.preset, chosen.a) == ("tiny", {"spec": "eager", "dtype": "float32"})
    served = {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body.vllm_xargs.ngram_size": 30}
    assert chosen.b == [served, "vendor", {"spec": "fast", "attention": "sdpa"}]
    for others in (["trace", "p.png", "--a", "fast", "--b", "vendor"], ["compare", "--", "--a"]):
        assert take_sides(others) == (others, {})


def test_numbers_of_options_are_plain_ones() -> None:
    """The parser's are of subclasses, which no record takes back from JSON."""
    command, chosen = parse(["bench", "--tokens", "5"])
    assert type(chosen_arguments(command, chosen)["tokens"]) is int


# --- doctor ---------------------------------------------------------------------------------------


Rows = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def rows(document: Callable[..., Any]) -> Rows:
    """The findings by their subject, whatever is missing here."""

    def found(*words: object, code: int = 0) -> dict[str, dict[str, str]]:
        return {row["subject"]: row for row in document("doctor", *words, code=code)["findings"]}

    return found


def test_the_checkpoint_and_folders_that_take_no_file_are_looked_at(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    there = rows("--checkpoint", checkpoint, "--history", tmp_path / "h")
    assert (there["torch"]["state"], there["checkpoint"]["state"]) == ("ok", "ok") and "limits" not in there
    (tmp_path / "file").touch()  # nobody can write below it, not even root
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "file" / "cache"))
    words = ("--checkpoint", tmp_path / "none", "--history", tmp_path / "file" / "history")
    found = rows(*words, code=FAILED)
    for subject, text in (
        ("checkpoint", "no config.json"),
        ("cache", "DSOCR_CACHE"),
        ("history", "DSOCR_RUNS"),
    ):
        assert found[subject]["state"] != "ok" and text in str(found[subject])


def test_a_leftover_is_named_but_not_that_of_a_writer_at_work(
    tmp_path: Path, rows: Rows, said: Callable[..., str]
) -> None:
    history = tmp_path / "h"
    write_run(history, "whole", [timing("p", "sam", 1.5)])
    with History(history) as opened, opened.writer(record("new")) as run:
        run.add_rows("timings", [timing("p", "sam", 1.0)])
        assert rows("--history", history)["history"]["detail"] == f"{history}: runs 1"
        assert "killed" not in said("history", "check", "--history", history)
    (history / "unfinished" / "killed.1").mkdir()
    (history / "unfinished" / "killed.1" / "half.bin").write_bytes(b"x" * 1000)
    left = said("history", "check", "--history", history)
    assert "unfinished/killed.1: 1,000 bytes of a writer that was stopped: delete that folder" in left
