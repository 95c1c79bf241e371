"""The command on the embedded checkpoint: both sides, what it prints, what it puts in, what it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.cli.main import main
from dsocr_core.models.family import load_config
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.parity_records import Divergence
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.runs.history import History
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.runs.traces import summary_of, traces_of
from dsocr_core.settings import Settings
from dsocr_core.trace.names import taps_of
from dsocr_core.trace.run import MOST_STEPS, TracePlan, divergence_steps, trace_page
from tests.trace.conftest import PAGE

SETTINGS = Settings(preset="tiny", dtype="bfloat16")
QUICK = ("--preset", "tiny", "--dtype", "bfloat16", "--device", "cpu", "--history", "")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_the_vendors_code_and_the_eager_engine_are_equal_and_the_tensors_are_kept(
    tmp_path: Path, interpreter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor = ("--vendor.interpreter", interpreter)
    code = run("trace", PAGE, *QUICK, *vendor, "--steps", 3, "--out", tmp_path, "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document == {
        "equal": True, "compared": document["compared"], "differing": 0, "first": None, "causes": [],
    }  # fmt: skip
    a, b = Dump(tmp_path / "a"), Dump(tmp_path / "b")
    taps = taps_of(load_config(EMBEDDED_CHECKPOINT))
    assert a.calls == b.calls == 4
    # What has a module is tapped on both sides; only our own attention shows its rotated queries.
    queries = {tap.name for tap in taps if tap.at == "queries"}
    assert {tap.name for tap in taps} - queries <= set(b.keys(0))
    assert {key for key in a.keys(0) if key not in b.keys(0)} == queries and len(queries) == 6
    assert document["compared"] == sum(len(b.keys(call)) for call in range(4))
    assert a.about["token_ids"] == b.about["token_ids"] and a.about["weights"] == b.about["weights"]
    assert b.about["backend"] == "vendor"
    assert {"torch", "transformers"} <= b.about["versions"].keys()

    # The same from the directories alone.
    assert run("trace", tmp_path / "a", tmp_path / "b", "--json") == 0
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_float32_is_equal_to_the_last_bit_at_any_number_of_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stable sort of the experts' tokens, or a head over the last position alone, differs in float32."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))  # of the worker
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        letter = EMBEDDED_CHECKPOINT.parent / "samples" / "01-letter.png"
        code = run(
            "trace", letter, "--preset", "small", "--dtype", "float32", "--steps", 1, "--json",
            "--only", "decoder,norm,logits",
        )  # fmt: skip
    finally:
        torch.set_num_threads(before)
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["differing"] == 0 and document["compared"] > 200


@pytest.mark.parametrize(("index", "steps"), [(61, 61), (10_000, MOST_STEPS), (None, 8)])
def test_a_trace_goes_to_the_first_divergence(
    index: int | None, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    divergence = None if index is None else Divergence(index, "", None)
    found = SimpleNamespace(report=SimpleNamespace(first_divergence=divergence))
    monkeypatch.setattr(ResultCache, "find", lambda *_: found)
    assert divergence_steps(SETTINGS, SETTINGS.request(PAGE), TracePlan()) == steps


def test_the_oracle_differs_by_rounding_and_exit_code_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(
        "trace", PAGE, *QUICK, "--a", "float32", "--b", "eager", "--steps", 1, "--only", "clip", "--json"
    )
    document = json.loads(capsys.readouterr().out)
    assert code == 1 and not document["equal"] and document["differing"] <= document["compared"] < 50
    first = document["first"]
    assert first.keys() == {"name", "call", "differing_share", "max_ulp", "relative_to_std"}
    assert first["name"] == "clip.embeddings" and first["call"] == 0
    assert document["causes"][0]["kind"] == "rounding"


def test_a_cancelled_trace_ends_between_two_blocks(request_: OcrRequest) -> None:
    cancel, calls = CancelToken(), []

    def stop(side: str, call: int, calls_in_all: int) -> None:
        calls.append((side, call, calls_in_all))
        cancel.set()

    with pytest.raises(Cancelled):
        trace_page(SETTINGS, request_, TracePlan("eager", "float32", 3), stop, cancel)
    assert calls == [("A eager", 0, 4)]


def test_a_summary_is_kept_in_the_history_and_found_by_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history"
    sides = ("--a", "float32", "--b", "eager", "--steps", 1, "--only", "clip.block0")
    assert run("trace", PAGE, *QUICK[:-1], history, *sides, "--save", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    with History(history) as past:
        (found,) = traces_of(past, PAGE.name)
        assert traces_of(past, "other.png") == []
        assert traces_of(past, "renamed.png", found["sha256"]) == [found]
        summary, record = summary_of(past, found), past.record(found["run_id"])
    assert summary.document() == document and (summary.a, summary.b, summary.steps) == ("float32", "eager", 0)
    assert record.command is not None and "trace" in record.command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "-1"], "--steps"),
        (["--only", "klip"], "--only klip: no such block"),
        (["--only", "clip.block9"], "--only clip.block9"),
        (["--save"], "--save has nowhere to save to"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("trace", PAGE, *QUICK, "--b", "float32", *arguments) == 2
    assert said in " ".join(capsys.readouterr().out.split())
