"""The bench: figures by hand, the same page for all, nothing invented for what was not measured."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import dsocr_core.measure.bench as bench_module
import dsocr_core.measure.device as measure_device
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.fast import FastEngineUnavailableError
from dsocr_core.measure import processes
from dsocr_core.measure.bench import WARM_UP, BenchPlan, bench, record_bench
from dsocr_core.measure.bench_report import DeviceFigures, EngineFigures, Spread
from dsocr_core.measure.synthetic_page import parse_size
from dsocr_core.models.family import load_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR, StageTiming
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.torch_trace import read_trace
from dsocr_core.settings import Settings, SettingsError
from tests.support.results import make_result
from tests.support.seeded_weights import tiny_config, tiny_unlimited_config, written

DEVICE = DeviceFigures("a device", "2", 4e12, 8e14, "bfloat16")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "config.json"
    path.write_text(json.dumps(tiny_config()))
    return f"random:{path}"


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_device, "_CPU_COPY_BYTES", 2**16)
    monkeypatch.setattr(measure_device, "_CPU_SIDE", 16)


def plan(checkpoint: str, **changes: Any) -> BenchPlan:
    settings = Settings(checkpoint=checkpoint, preset="tiny", device="cpu")
    given: dict[str, Any] = {"size": (300, 200), "tokens": 5, "repeat": 2}
    return BenchPlan(settings, **given | changes)


def test_a_spread_has_its_median_and_percentiles() -> None:
    spread = Spread.of([float(value) for value in range(21, 0, -1)])
    assert spread == Spread(median=11, min=1, p5=2, p95=20, n=21)
    assert Spread.of([3.0]) == Spread(3, 3, 3, 3, 1)
    assert Spread.of([]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"size": (0, 5)}, {"size": (10**5, 10**5)},
        {"engines": ("eager", "eager")},
        {"vendor_checkpoint": "somewhere", "nvtx_only": True},
        {"profile": Path("trace.json"), "nvtx_only": True},
        {"profile": Path("trace.json"), "engines": ("eager", "fast")},
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        plan("random:none", **changes)
    assert "\n" not in str(error.value)


def test_a_size_is_two_numbers() -> None:
    assert parse_size("1280X960") == (1280, 960)
    for text in ("", "12x", "-1x5", "1x2x3", "²x1"):
        with pytest.raises(SettingsError, match="WIDTHxHEIGHT"):
            parse_size(text)


def test_every_pass_is_a_sample_and_every_token_is_decoded(checkpoint: str, small_device: None) -> None:
    found = bench(plan(checkpoint, batch=2))
    (eager,) = found.engines
    assert (eager.name, eager.new_tokens, found.grid) == ("eager", 5, (1, 1))
    assert len(found.results["eager"]) == 4
    assert {result.request.image.name for result in found.results["eager"]} == {"page-0.png", "page-1.png"}
    assert set(eager.stages) == {stage.value for stage in Stage} - {"encoder"}
    assert all(figures.milliseconds.n == 4 for figures in eager.stages.values())
    assert eager.ms_per_token and eager.pages_per_s and eager.tokens_per_s
    assert (eager.ms_per_token.n, eager.pages_per_s.n) == (4, 2)
    assert eager.stages["decode"].calls == 4
    # The whole page's time holds its stages.
    slowest = 2e3 / min(eager.pages_per_s.min, eager.pages_per_s.median)
    assert sum(eager.stages[name].milliseconds.min for name in ("prefill", "decode")) < slowest
    assert found.device.copy_bytes_per_s and found.device.matmul_flops_per_s
    printed = json.dumps(found.document() | {"saved": ["run"]})  # what a gate reads of it
    measured = processes._measured(processes.working_tree(), 0, f"a table\n{printed}\n", "")
    assert (
        measured.rates["tokens/s"] == eager.tokens_per_s.median
        and measured.stages.keys() == eager.stages.keys()
    )


def test_a_profile_has_the_stages_of_one_more_page(
    checkpoint: str, small_device: None, tmp_path: Path
) -> None:
    """The importer of torch's traces finds each stage; the measured passes are as without it."""
    trace = tmp_path / "new" / "trace.json"
    found = bench(plan(checkpoint, profile=trace))
    assert len(found.results["eager"]) == 2
    imported = read_trace(RunFiles(trace))[0]
    stages = {row["stage"] for row in imported.tables["timings"]}
    assert {"preprocess", "prefill", "sam", "decode", "postprocess"} <= stages
    with pytest.raises(DsocrError, match=r"trace.json/below: the trace cannot be written"):
        bench(plan(checkpoint, repeat=1, profile=trace / "below"))


def test_images_of_one_prompt_are_counted_together(small_device: None, tmp_path: Path) -> None:
    """By hand: each image 16 x 17 + 1 positions; one page's FLOPs of SAM twice."""
    found = []
    for images in (1, 2):
        checkpoint = written(tiny_unlimited_config(), tmp_path)
        settings = Settings(
            checkpoint=checkpoint, preset="base", prompt="pages", device="cpu", dtype="float32"
        )
        (eager,) = bench(BenchPlan(settings, size=(60, 40), tokens=2, repeat=1, images=images)).engines
        found.append(eager)
    one, two = found
    assert two.prompt_tokens - one.prompt_tokens == 273
    assert (one.stages["sam"].calls, two.stages["sam"].calls) == (1, 2)
    assert two.stages["sam"].flops == 2 * (one.stages["sam"].flops or 0) > 0


def figures(name: str = "eager", decode_ms: float = 100.0) -> EngineFigures:
    result = make_result(token_ids=tuple(range(1001)))
    timings = tuple(row for row in result.timings if row.stage != Stage.DECODE)
    results = [
        replace(result, timings=(*timings, StageTiming(Stage.DECODE, decode_ms * times, 1000)))
        for times in (1, 2, 3)
    ]
    costs: bench_module.Costs = {Stage.SAM: 4 * 10**12, Stage.DECODE: 10**12}, 1.15e9
    return bench_module.figures_of(name, "", results, [2.0, 4.0], DEVICE, costs)


def test_a_token_of_the_fast_engine_reads_the_head_in_eight_bits(checkpoint: str, small_device: None) -> None:
    asked = plan(checkpoint, repeat=1)
    (eager,) = bench(asked).results["eager"]
    read = {
        name: bench_module._costs(checkpoint, asked, replace(eager, environment={"engine": name}))[1] or 0
        for name in ("eager", "fast")
    }
    head = load_config(Path(checkpoint.removeprefix("random:"))).decoder
    assert read["eager"] - read["fast"] == (4 - 1) * head.vocab_size * head.hidden_size  # of float32


def test_rates_and_shares_follow_from_times_and_counts() -> None:
    found = figures(decode_ms=500.0)  # and 1000, 1500: 1 ms a step in the middle
    assert found.ms_per_token and found.ms_per_token.median == 1.0
    assert found.tokens_per_s and found.tokens_per_s.median == 1000.0
    assert found.pages_per_s and found.pages_per_s.median == 3.0
    assert found.bytes_per_s == pytest.approx(1.15e12)
    assert found.copy_share == pytest.approx(1.15 / 4)
    sam = found.stages["sam"]  # 4 TFLOP in 10 ms
    assert sam.flops_per_s == pytest.approx(4e14)
    assert sam.matmul_share == pytest.approx(0.5)
    assert found.stages["preprocess"].flops is None


def test_marks_alone_measure_nothing_and_warm_up_unmarked(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []
    monkeypatch.setattr("dsocr_core.engine.stage_timer.nvtx.push_range", marked.append)
    monkeypatch.setattr("dsocr_core.engine.stage_timer.nvtx.pop_range", lambda: None)
    monkeypatch.setattr(bench_module, "copy_bandwidth", lambda *_: pytest.fail("the device was measured"))
    found = bench(plan(checkpoint, nvtx_only=True, repeat=2))
    (eager,) = found.engines
    assert marked.count("decode") == 2 and WARM_UP > 0
    assert eager.stages == {} and eager.new_tokens == 5
    unknown = (eager.ms_per_token, eager.pages_per_s, eager.peak_memory_bytes, eager.copy_share)
    assert unknown == (None,) * 4
    found.print(Console(file=io.StringIO(), width=100))


def test_what_cannot_run_is_named_before_anything_is_measured(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "copy_bandwidth", lambda *_: pytest.fail("measured"))
    with pytest.raises(FastEngineUnavailableError):
        bench(plan(checkpoint, engines=("eager", "fast")))
    with pytest.raises(DsocrError, match="not been allowed"):
        bench(plan(checkpoint, vendor_checkpoint="/somewhere"))


def test_each_engine_is_recorded_as_a_run(checkpoint: str, small_device: None, tmp_path: Path) -> None:
    wanted = plan(checkpoint, batch=2, count=True)
    found = bench(wanted)
    machine = {"load_1m": 0.5, "contended": False}
    # The same again as if the published code had read it, with the FLOPs of its passes.
    (eager,), results = found.engines, found.results["eager"]
    found = replace(
        found,
        engines=(eager, replace(eager, name=VENDOR)),
        results=found.results | {VENDOR: tuple(replace(result, backend=VENDOR) for result in results)},
        published_flops={"sam": [5], "clip": [2], "projector": [1], "forward": [100, 10, 11, 12]},
    )
    name, vendor = record_bench(
        wanted, found, "python -m dsocr_core bench", str(tmp_path / "history"), machine
    )
    with History(tmp_path / "history") as history:
        rows = history.query("flop_gaps", run_ids=[name, vendor])[0].set_index(["run_id", "stage"])
    assert rows.loc[name, "published"].isna().all() and (rows["gap_flops"] == 0).all()
    published = {"sam": 5, "clip": 2, "projector": 1, "prefill": 92, "decode": 10 + 11 + 12 + 13}
    assert rows.loc[vendor, "published"].dropna().to_dict() == published
    run = tmp_path / "history" / "runs" / name
    record = json.loads((run / "run.json").read_text())
    assert (record["engine"], record["command"]) == ("eager", "python -m dsocr_core bench")
    assert record["environment"]["machine"] == machine
    assert record["tables"]["readings"] == 4
    assert record["tables"]["timings"] == 4 * (len(Stage) - 1)
