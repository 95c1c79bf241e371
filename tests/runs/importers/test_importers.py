"""Prior runs: every figure against its file, the same run once, strangers' files refused by name."""

import json
import os
import random
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import archive, detect
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.llm_perf_opt import read_summary
from dsocr_core.runs.importers.nsys import KERNEL_SUMMARY
from dsocr_core.runs.importers.own_run import read_own_run
from dsocr_core.runs.importers.reading import as_yaml
from tests.support.flat_tables import flat_tables
from tests.support.made_up_runs import record
from tests.support.paths import SHARED

SAMPLES = SHARED / "data" / "llm-perf-opt"
with_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
SAMPLE_RUNS = {"nsys/all-stage": None, "nsys/per-stage/prefill": "prefill", "nsys/per-stage/decode": "decode"}
"""Sample runs and the one stage whose kernels each captured."""

HOSTILE = [
    'it\'s "quoted"',
    "'; DROP TABLE runs; --",
    "<img src=x onerror=alert(1)>",
    "../../../etc/passwd",
    "x" * 4000,
    "📄 straße 测试",
    "=cmd|' /C calc'!A0",
    "a,b\nc\td",
    "",
]


@pytest.fixture
def history(tmp_path):
    with History(tmp_path / "history") as opened:
        yield opened


def by_path(report):
    return {item.path: item.reason for item in report.skipped}


def rows(history, run_id, table):
    tables = flat_tables(history, run_id)
    return tables[table].to_pylist() if table in tables else []


# --- samples ------------------------------------------------------------------------------------


def figures_in_files(run: Path, stage: str | None) -> dict:
    """Every figure of a sample run, read with other means than the importer's."""
    found = {}
    table = pd.read_csv(run / "nsys" / KERNEL_SUMMARY)
    names = ["time_percent", "total_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"]
    for _, row in table.iterrows():
        for name, value in zip(names, row.iloc[:8], strict=True):
            found["kernel", row["Name"], stage, name] = float(value)
    text = (run / "stakeholder_summary.md").read_text()
    for stage_name, mean, std in re.findall(
        r"^\|(prefill|decode|sam|clip|projector)\|(.+?)\|(.+?)\|$", text, re.M
    ):
        found[stage_name, "mean"], found[stage_name, "std"] = float(mean), float(std)
    vision = re.search(r"Vision ≈ ([\d.]+) ± ([\d.]+) ms", text)
    found["vision", "mean"], found["vision", "std"] = float(vision[1]), float(vision[2])
    for name, label in (("tokens", "Tokens"), ("tokens_per_s", "Tokens/s")):
        pair = re.search(rf"^\|{label}\|(.+?)\|(.+?)\|$", text, re.M)
        found[name] = {"mean": float(pair[1]), "std": float(pair[2])}
    found["peak"] = float(re.search(r"^\|Peak TFLOPs \(est\.\)\|(.+?)\|$", text, re.M)[1])
    for scope in ("Model-level", "Prefill", "Decode"):
        found["mfu", scope.lower()] = float(re.search(rf"^\|{scope}\|(0\.\d+)\|$", text, re.M)[1])
    found["created"] = re.search(r"Generated: (.+)Z", text)[1] + "+00:00"
    found["environment"] = json.loads((run / "env.json").read_text())
    found["command"] = (run / "nsys" / "cmd.txt").read_text().strip()
    config = (run / "config.yaml").read_text()
    for name in (
        "max_new_tokens",
        "base_size",
        "image_size",
        "no_repeat_ngram_size",
        "num_samples_per_epoch",
    ):
        found["config", name] = int(re.search(rf"\b{name}: (\d+)$", config, re.M)[1])
    return found


def figures_in_history(history, run_id) -> dict:
    found = {}
    for row in rows(history, run_id, "kernels"):
        name, stage = row.pop("name"), row.pop("stage")
        row.pop("run_id")
        found |= {("kernel", name, stage, column): value for column, value in row.items()}
    for row in rows(history, run_id, "stage_timings"):
        assert row["page"] is None and row["backend"] == "vendor" and row["calls"] is None
        assert row["inside_prefill"] == (row["stage"] in ("sam", "clip", "projector", "vision"))
        found[row["stage"], row["aggregate"]] = row["milliseconds"]
    record = history.record(run_id)
    reported = record.environment["reported"]
    found |= {
        "tokens": reported["tokens"],
        "tokens_per_s": reported["tokens_per_s"],
        "peak": reported["peak_tflops"],
    }
    found |= {("mfu", scope): value for scope, value in reported["mfu"].items()}
    found["created"], found["command"] = record.created, record.command
    found["environment"] = {"gpu": record.gpu, **record.versions}
    settings = record.settings
    found |= {
        ("config", "max_new_tokens"): settings["infer"]["max_new_tokens"],
        ("config", "no_repeat_ngram_size"): settings["infer"]["no_repeat_ngram_size"],
        ("config", "base_size"): settings["model"]["preprocess"]["base_size"],
        ("config", "image_size"): settings["model"]["preprocess"]["image_size"],
        ("config", "num_samples_per_epoch"): settings["dataset"]["sampling"]["num_samples_per_epoch"],
    }
    return found


@with_samples
@pytest.mark.parametrize(("place", "stage"), SAMPLE_RUNS.items())
def test_every_figure_of_a_sample_run(history, place, stage):
    report = import_paths(history, [SAMPLES / place])
    (run,) = report.imported
    assert figures_in_history(history, run.run_id) == figures_in_files(SAMPLES / place, stage)
    record = history.record(run.run_id)
    assert (record.source, record.profiled, record.backends) == ("llm-perf-opt", True, ("vendor",))
    assert (record.preset, record.dtype, record.device) == ("gundam", "bfloat16", "cuda:0")
    assert record.attention == "flash_attention_2"
    assert record.host is record.git_commit is record.git_dirty is record.notes is None
    # The only "input" of a run under Nsight is a command line: no page comes of it.
    assert set(flat_tables(history, run.run_id)) == {"stage_timings", "kernels"}


@with_samples
def test_a_whole_tree_and_every_file_of_it_accounted_for(history):
    report = import_paths(history, [SAMPLES])
    others = {"ncu", "sweep/20251128-152354"}
    origins = {run.origin.relative_to(SAMPLES).as_posix() for run in report.imported}
    assert origins == {*SAMPLE_RUNS, *others}
    taken = {
        SAMPLES / place / name
        for place in SAMPLE_RUNS
        for name in (
            "env.json", "config.yaml", "inputs.yaml", "stakeholder_summary.md", "nsys/cmd.txt",
            f"nsys/{KERNEL_SUMMARY}",
        )
    }  # fmt: skip
    taken |= {SAMPLES / "ncu" / "command.yaml", *SAMPLES.glob("ncu/kernel_*/*.csv")}
    taken |= set(SAMPLES.glob("sweep/*/*/*_sweep.json"))
    every = {path for path in SAMPLES.rglob("*") if path.is_file()}
    assert set(by_path(report)) == every - taken
    assert all(by_path(report).values())


# --- a run directory with everything, written by hand ---------------------------------------------

METRICS = {
    "aggregates": {
        "prefill_ms": {"mean": 100.25, "std": 5.5},
        "decode_ms": {"mean": 2000.125, "std": 25.0},
        "tokens": {"mean": 150.0, "std": 50.0},
        "tokens_per_s": {"mean": 75.5, "std": 1.25},
        "stage_ms": {
            "prefill": {"mean": 100.25, "std": 5.5},
            "decode": {"mean": 2000.125, "std": 25.0},
            "vision": {"mean": 40.5, "std": 2.5},
            "sam": {"mean": 29.75, "std": 1.5},
        },
    },
    "mfu_model_level": 0.0026,
    "mfu_per_stage": {"prefill": 0.021, "decode": 0.0002, "vision": 0.0},
    "model_dims": {"d_model": 1280, "d_ff": 6848, "n_layers": 12},
    "peak_tflops": 209.5,
}
TEXTS = [
    "<|ref|>title<|/ref|><|det|>[[10, 20, 110, 70]]<|/det|>\nInvoice<｜end▁of▁sentence｜>",
    "Second page",
]
PREDICTIONS = [
    {
        "image": "/data/a/page.png", "text_raw": TEXTS[0], "text_clean": "x", "prefill_ms": 95.5,
        "decode_ms": 1975.25, "vision_ms": 0.0, "tokens": 100, "tokens_per_s": 50.6,
    },
    {"image": "/data/b/page.png", "text_raw": TEXTS[1], "prefill_ms": 105.0, "decode_ms": 2025.0,
     "vision_ms": 43.0, "tokens": 200},
]  # fmt: skip
STATIC = {
    "metadata": {}, "total": {"params": 3, "flops": 4.0, "activations": 5.0},
    "stages": {
        "sam": {"params": 95569152, "flops": 1.5e12, "flops_isolated": 1.25e12, "flops_analytic": None},
        "clip": {"params": 303177728, "flops": 0, "flops_analytic": 3.5e11},
        "prefill": {"params": 1, "flops": 8e11, "flops_analytic": 6e11},
        "decode": {"params": 0, "flops": 0.0, "flops_analytic": 1.14e9, "operators": {}, "notes": []},
    },
}  # fmt: skip


@pytest.fixture
def run(tmp_path) -> Path:
    """A run directory as the profile runner leaves it, not under Nsight."""
    root = tmp_path / "tree" / "20251107-101112"
    (root / "torch_profiler" / "pred").mkdir(parents=True)
    (root / "static_analysis").mkdir()
    (root / "env.json").write_text(json.dumps({"gpu": "GPU X", "cuda": "12.8", "torch": "2.9"}))
    (root / "config.yaml").write_text(
        "model: {dtype: bf16, preprocess: {base_size: 640, image_size: 640, crop_mode: false}}\n"
        "infer: {max_new_tokens: inf}\ndevice: cuda:1\nuse_flash_attn: false\n"
        "pipeline: {nsys: {enable: false, nvtx_capture: prefill}}\n"
    )
    (root / "inputs.yaml").write_text(
        "count: 3\ninputs:\n"
        "- {path: /data/a/page.png, bytes: 1234, width: 800, height: 600}\n"
        "- {path: /data/b/page.png, bytes: 4321, width: 801, height: 601}\n"
        "- {path: /data/c.png, bytes: 99, width: 10, height: 20}\n"
    )
    (root / "torch_profiler" / "metrics.json").write_text(json.dumps(METRICS))
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in PREDICTIONS)
    (root / "torch_profiler" / "pred" / "predictions.jsonl").write_text(lines)
    (root / "static_analysis" / "static_compute.json").write_text(json.dumps(STATIC))
    page = root / "torch_profiler" / "viz" / "0123456789abcdef0123456789abcdef"
    (page / "images").mkdir(parents=True)
    (page / "info.json").write_text(
        json.dumps(
            {
                "source_image": "/data/a/page.png", "result_image": "result_with_boxes.jpg",
                "text_raw": TEXTS[0], "result_mmd": "result.mmd",
                "timings_ms": {"prefill": 95.5, "decode": 1975.25, "vision": 0.0},
                "boxes": [{"x": 8, "y": 12, "w": 80, "h": 30, "text": "Invoice"}],
            }
        )
    )  # fmt: skip
    (page / "result.mmd").write_text("Invoice")
    Image.new("RGB", (8, 8)).save(page / "result_with_boxes.jpg")
    Image.new("RGB", (4, 4)).save(page / "images" / "0.jpg")
    return root


def test_a_run_with_all_its_files(history, run):
    report = import_paths(history, [run.parent])
    assert report.skipped == []
    (found,) = report.imported
    record = history.record(found.run_id)
    assert (record.created, record.profiled) == ("2025-11-07T10:11:12+00:00", False)
    assert record.notes == "The time is the folder's, in a time zone that is not known."
    assert (record.gpu, record.device, record.dtype) == ("GPU X", "cuda:1", "bfloat16")
    assert (record.preset, record.attention, record.command) == ("small", None, None)
    assert record.versions == {"cuda": "12.8", "torch": "2.9"}
    assert record.settings["infer"] == {"max_new_tokens": "inf"}
    assert record.environment["reported"] == {
        "tokens": {"mean": 150.0, "std": 50.0},
        "tokens_per_s": {"mean": 75.5, "std": 1.25},
        "mfu": {"model-level": 0.0026, "prefill": 0.021, "decode": 0.0002},  # 0.0: vision's was not computed
        "peak_tflops": 209.5,
        "model_dims": {"d_model": 1280, "d_ff": 6848, "n_layers": 12},
    }
    images = {row["page"]: row for row in rows(history, found.run_id, "images")}
    assert set(images) == {"a/page.png", "b/page.png", "c.png"}
    assert images["a/page.png"] | {"run_id": "", "text_raw": ""} == dict.fromkeys(images["a/page.png"]) | {
        "run_id": "", "page": "a/page.png", "path": "/data/a/page.png", "width": 800, "height": 600,
        "bytes": 1234, "preset": "small", "new_tokens": 100, "backend": "vendor", "text_raw": "",
    }  # fmt: skip
    assert [images[page]["text_raw"] for page in ("a/page.png", "b/page.png", "c.png")] == [*TEXTS, None]
    times = {
        (row["page"], row["stage"], row["aggregate"]): (row["milliseconds"], row["inside_prefill"])
        for row in rows(history, found.run_id, "stage_timings")
    }
    assert times == {
        ("a/page.png", "prefill", "page"): (95.5, False),  # vision 0.0: its writer's word for "not timed"
        ("a/page.png", "decode", "page"): (1975.25, False),
        ("b/page.png", "prefill", "page"): (105.0, False),
        ("b/page.png", "decode", "page"): (2025.0, False),
        ("b/page.png", "vision", "page"): (43.0, True),
        (None, "prefill", "mean"): (100.25, False),
        (None, "prefill", "std"): (5.5, False),
        (None, "decode", "mean"): (2000.125, False),
        (None, "decode", "std"): (25.0, False),
        (None, "vision", "mean"): (40.5, True),
        (None, "vision", "std"): (2.5, True),
        (None, "sam", "mean"): (29.75, True),
        (None, "sam", "std"): (1.5, True),
    }
    flops = {(row["stage"], row["kind"]): row["flops"] for row in rows(history, found.run_id, "stage_flops")}
    assert flops == {
        ("sam", "traced"): 1.5e12,
        ("sam", "traced_isolated"): 1.25e12,
        ("clip", "analytic"): 3.5e11,
        ("prefill", "traced"): 8e11,
        ("prefill", "analytic"): 6e11,
        ("decode", "analytic_per_token"): 1.14e9,
    }
    gaps, _ = history.query("flop_gaps", run_ids=[found.run_id])
    gaps = gaps.set_index("stage")
    assert gaps.loc["prefill", ["counter", "gap_flops", "gap_percent", "milliseconds"]].tolist() == [
        "fvcore", -2e11, -25.0, 100.25,
    ]  # fmt: skip
    assert gaps.loc[["sam", "clip"], "gap_flops"].isna().all()  # one side alone; 0 is not known
    (box,) = rows(history, found.run_id, "boxes")
    assert [box[name] for name in ("page", "number", "x1", "y1", "x2", "y2", "text", "label")] == [
        "a/page.png", 0, 8.0, 12.0, 88.0, 42.0, "Invoice", None,
    ]  # fmt: skip
    place = "vendor/viz/0123456789abcdef0123456789abcdef"
    viz = run / "torch_profiler" / "viz" / "0123456789abcdef0123456789abcdef"
    for name in ("result.mmd", "result_with_boxes.jpg", "images/0.jpg", "info.json"):
        assert history.file(found.run_id, f"{place}/{name}").read_bytes() == (viz / name).read_bytes()
    assert history.file(found.run_id, "imported/metrics.json").read_text() == json.dumps(METRICS)


def test_a_run_under_nsight_is_profiled_though_its_times_are_whole(history, run):
    (run / "nsys").mkdir()
    (run / "nsys" / "cmd.txt").write_text("nsys profile -c nvtx -p decode@LLM python -m x")
    (run / "nsys" / KERNEL_SUMMARY).write_text(CSV)
    (found,) = import_paths(history, [run]).imported
    assert history.record(found.run_id).profiled
    assert {row["stage"] for row in rows(history, found.run_id, "kernels")} == {"decode"}


def test_what_is_damaged_is_named_and_the_rest_is_taken(history, run):
    (run / "torch_profiler" / "metrics.json").write_text(json.dumps(METRICS)[:-40])
    (run / "inputs.yaml").write_text("a: &a [x]\nb: [*a, *a]\n")
    predictions = run / "torch_profiler" / "pred" / "predictions.jsonl"
    predictions.write_text(predictions.read_text()[:-30])
    (run / "env.json").write_text("")
    report = import_paths(history, [run])
    (found,) = report.imported
    reasons = by_path(report)
    assert set(reasons) == {
        run / "torch_profiler/metrics.json", run / "inputs.yaml", predictions, run / "env.json",
    }  # fmt: skip
    assert reasons[run / "env.json"] == "empty"
    assert reasons[predictions].startswith("line 2: not valid JSON")
    assert "aliases" in reasons[run / "inputs.yaml"]
    assert [row["page"] for row in rows(history, found.run_id, "images")] == ["page.png"]
    assert history.record(found.run_id).gpu is None


def test_figures_that_are_none_are_refused_with_their_file(history, run):
    for name, content in (
        ("metrics.json", json.dumps(METRICS).replace("100.25", "NaN")),
        ("metrics.json", json.dumps(METRICS).replace("100.25", "-1")),
        ("metrics.json", json.dumps(METRICS).replace("100.25", "1e400")),
        ("metrics.json", json.dumps(METRICS).replace("100.25", '"100"')),
        ("metrics.json", json.dumps(METRICS).replace("100.25", "true")),
        ("metrics.json", json.dumps(METRICS).replace("100.25", "9" * 5000)),
        ("metrics.json", '{"aggregates": {}, "aggregates": {"prefill_ms": {"mean": 1}}}'),
        ("metrics.json", "[" * 100_000),
        ("metrics.json", '{"aggregates": []}'),
        ("metrics.json", "\x00" * 100),
        ("pred/predictions.jsonl", '{"image": "x.png", "prefill_ms": "fast"}'),
        ("pred/predictions.jsonl", '{"image": "x.png", "tokens": 1.5}'),
        ("pred/predictions.jsonl", '{"image": "x.png", "tokens": 9999999999}'),
        ("pred/predictions.jsonl", '{"text_raw": "no image"}'),
        ("viz/0123456789abcdef0123456789abcdef/info.json", '{"source_image": "x", "boxes": [{"x": 1}]}'),
    ):
        file = run / "torch_profiler" / name
        whole = file.read_bytes()
        file.write_text(content)
        report = import_paths(history, [run])
        assert file in by_path(report), content[:80]
        assert len(report.imported) + len(report.known) == 1
        file.write_bytes(whole)
    assert history.problems == {}


def test_the_second_reading_of_an_image_is_another_page(history, run):
    predictions = run / "torch_profiler" / "pred" / "predictions.jsonl"
    again = PREDICTIONS[0] | {"prefill_ms": 91.0, "text_raw": "other"}
    predictions.write_text(predictions.read_text() + json.dumps(again) + "\n")
    (found,) = import_paths(history, [run]).imported
    prefill = {
        row["page"]: row["milliseconds"]
        for row in rows(history, found.run_id, "stage_timings")
        if row["stage"] == "prefill" and row["aggregate"] == "page"
    }
    assert prefill == {"a/page.png": 95.5, "b/page.png": 105.0, "a/page.png (2)": 91.0}
    # The boxes are those of the reading that has their text.
    assert [row["page"] for row in rows(history, found.run_id, "boxes")] == ["a/page.png"]


def test_a_page_that_failed_is_taken_as_failed(history, run):
    """Lines with an error are this project's own: its run directories have the same layout."""
    place = run / "torch_profiler" / "pred" / "predictions.jsonl"
    about = {"image": "/data/c.png", "source": "c.png", "backend": "eager", "error": "c.png: cut short"}
    place.write_text(place.read_text() + json.dumps(about) + "\n")
    shown = run / "torch_profiler" / "viz" / ("f" * 32)
    shown.mkdir()
    (shown / "info.json").write_text(json.dumps({"source_image": "/data/d.png", "error": "no memory"}))
    report = import_paths(history, [run])
    assert report.skipped == []
    images = {row["page"]: row for row in rows(history, report.imported[0].run_id, "images")}
    assert {page: (row["error"], row["text_raw"]) for page, row in images.items()} == {
        "a/page.png": (None, TEXTS[0]),
        "b/page.png": (None, TEXTS[1]),
        "c.png": ("c.png: cut short", None),
        "d.png": ("no memory", None),
    }
    assert int(history.runs()["failed"].iloc[0]) == 2


def test_a_run_that_is_known_from_another_place_is_not_written_again(history, tmp_path, run):
    import_paths(history, [run])
    with History(tmp_path / "second", tmp_path / "history") as second:
        report = import_paths(second, [run])
    assert (len(report.imported), len(report.known)) == (0, 1)
    assert not list((tmp_path / "second").rglob("run.json"))


def test_links_inside_a_run_are_not_followed(history, tmp_path, run):
    (run / "torch_profiler").rename(tmp_path / "elsewhere")
    (run / "torch_profiler").symlink_to(tmp_path / "elsewhere")
    report = import_paths(history, [run])
    (found,) = report.imported
    assert set(by_path(report)) == {run / "torch_profiler"}
    assert set(flat_tables(history, found.run_id)) == {"images", "stage_flops"}
    assert all(row["text_raw"] is None for row in rows(history, found.run_id, "images"))


CSV = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '75.0,3000,2,1500.0,1500.0,1000,2000,707.1,"void gemm<(int)4, (bool)0>(T1)"\n'
    "25.0,1000,4,250.0,250.0,250,250,0.0,copy\n"
)


# --- summaries ----------------------------------------------------------------------------------

SUMMARY = """# Stakeholder Summary
- Generated: 2025-11-07T12:01:13+08:00
## Environment
|Key|Value|
| :---: | :---: |
|Device|GPU X|
## Aggregates
|Metric|Mean|Std|
| :---: | :---: | :---: |
|Prefill ms|98.5|64.0|
|Decode ms|707.25|12.5|
## Per-Stage Timings (ms)
|Stage|Mean (ms)|Std (ms)|
| :---: | :---: | :---: |
|prefill|98.5|64.0|
|clip|0.0|0.0|
## MFU
|Scope|MFU|
| :---: | :---: |
|Vision|0.000000|
|Decode|0.000211|
## Stage Takeaways
"""


def test_a_summary_says_only_what_was_measured():
    summary = read_summary(SUMMARY)
    assert summary.generated == "2025-11-07T04:01:13+00:00"
    assert (summary.device, summary.reported) == ("GPU X", {"mfu": {"decode": 0.000211}})
    assert {stage: (spread["mean"], spread["std"]) for stage, spread in summary.stages.items()} == {
        "prefill": (98.5, 64.0),
        "decode": (707.25, 12.5),
    }


@pytest.mark.parametrize(
    "text",
    [
        SUMMARY.replace("|prefill|98.5|64.0|", "|prefill|99.5|64.0|"),
        SUMMARY.replace("|prefill|98.5|64.0|", "|prefill|98.5|64.0|\n|prefill|98.5|64.0|"),
        SUMMARY.replace("707.25", "fast"),
        SUMMARY.replace("|12.5|", "|12."),
        SUMMARY[: SUMMARY.index("## Stage Takeaways")],
        SUMMARY[: SUMMARY.index("## MFU")],
        SUMMARY.replace("2025-11-07T", "2025-13-07T"),
        SUMMARY.replace("2025-11-07T12", "0001-01-01T01"),
    ],
)
def test_a_summary_cut_short_or_contradicting_itself_is_refused(text):
    with pytest.raises(InvalidFile):
        read_summary(text)


# --- strangers' files ---------------------------------------------------------------------------


def test_a_folder_of_garbage_empty_truncated_and_huge_files(history, tmp_path, run, monkeypatch):
    tree = run.parent
    (tree / "garbage.json").write_bytes(random.Random(2).randbytes(5000))
    (tree / "empty.csv").write_bytes(b"")
    (tree / "truncated.csv").write_text(CSV[:-20])
    with (tree / "huge.csv").open("wb") as handle:  # sparse: it takes no room
        handle.write(CSV.encode())
        handle.truncate(40 * 1024**3)
    (tree / "good.csv").write_text(CSV)
    (tree / "archive.zip").write_bytes(b"PK")
    (tree / "link").symlink_to("/etc")
    (tree / "loop").symlink_to(tree)
    os.mkfifo(tree / "pipe.csv")
    with (run / "torch_profiler" / "metrics.json").open("wb") as handle:
        handle.truncate(10 * 1024**3)
    report = import_paths(history, [tree])
    assert {taken.source for taken in report.imported} == {"llm-perf-opt", "nsys"}
    reasons = by_path(report)
    assert set(reasons) == {
        tree / name
        for name in (
            "garbage.json",
            "empty.csv",
            "truncated.csv",
            "huge.csv",
            "archive.zip",
            "link",
            "loop",
            "pipe.csv",
        )
    } | {run / "torch_profiler" / "metrics.json"}
    assert (
        "are read" in reasons[tree / "huge.csv"]
        and "are read" in reasons[run / "torch_profiler/metrics.json"]
    )
    assert reasons[tree / "empty.csv"] == "empty"
    assert reasons[tree / "loop"] == "a link; give the path it leads to"


def test_a_tree_without_end_is_left_in_time(history, tmp_path, monkeypatch):
    monkeypatch.setattr(detect, "FILE_LIMIT", 50)
    monkeypatch.setattr(detect, "DEPTH_LIMIT", 4)
    (tmp_path / "deep" / "/".join("abcdefgh")).mkdir(parents=True)
    assert "deeper" in " ".join(by_path(import_paths(history, [tmp_path / "deep"])).values())
    (tmp_path / "wide").mkdir()
    for index in range(80):
        (tmp_path / "wide" / f"{index}.txt").write_text("x")
    reasons = import_paths(history, [tmp_path / "wide"]).skipped
    assert sum("stopped here" in item.reason for item in reasons) == 1


def test_hostile_names_change_nothing_but_themselves(history, tmp_path, run):
    """In page names, texts, CSV cells, file names, settings and notes of the files."""
    kernels = run.parent / "kernels"
    for name in HOSTILE:
        kernels.mkdir()
        cell = '"' + (name or "k").replace('"', '""') + '"'
        file_name = (name.replace("/", "∕").encode()[:200].decode(errors="ignore") or "k") + ".csv"
        (kernels / file_name).write_text(CSV.replace("copy", cell), newline="")
        line = PREDICTIONS[0] | {"image": name or "p", "text_raw": name}
        (run / "torch_profiler" / "pred" / "predictions.jsonl").write_text(json.dumps(line) + "\n")
        (run / "config.yaml").write_text(yaml.safe_dump({"experiment": name, name: {"x": name}}))
        report = import_paths(history, [run.parent])
        ids = {taken.source: taken.run_id for taken in report.imported}
        assert rows(history, ids["nsys"], "kernels")[1]["name"] == (name or "k")
        images = rows(history, ids["llm-perf-opt"], "images")
        assert (images[0]["path"], images[0]["text_raw"]) == (name or "p", name or None)
        settings = history.record(ids["llm-perf-opt"]).settings
        assert settings == {"experiment": name, name: {"x": name}}
        shutil.rmtree(kernels)
    assert len(history) == 2 * len(HOSTILE) and history.problems == {}
    with History(tmp_path / "history") as again:
        assert len(again) == 2 * len(HOSTILE)
    assert {path.name for path in tmp_path.iterdir()} == {"history", "tree"}


@pytest.mark.parametrize(
    "text", ["a: &x [1]\nb: *x", "a: .nan", "a: !!python/object:os.system {}", "- 1", "a: [", ""]
)
def test_yaml_that_is_refused(text):
    with pytest.raises(InvalidFile):
        as_yaml(text)


def test_a_pipe_and_a_link_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bytes(tmp_path / "file", 100) == b"x"
    for name in ("pipe", "link", "."):
        with pytest.raises(InvalidFile):
            read_bytes(tmp_path / name, 100)


# --- archives -----------------------------------------------------------------------------------


def test_an_archive_is_a_tree(history, tmp_path, run):
    file = tmp_path / "upload.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in run.rglob("*"):
            zipped.write(path, Path("20251107-101112") / path.relative_to(run))
        zipped.writestr("note.txt", "hello")
        zipped.writestr("../outside.csv", CSV)
        zipped.writestr("/absolute.csv", CSV)
        link = zipfile.ZipInfo("link.csv")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    report = import_paths(history, [file])
    assert [taken.origin for taken in report.imported] == [file / "20251107-101112"]
    assert {path.relative_to(file).as_posix() for path in by_path(report)} == {
        "note.txt", "../outside.csv", "absolute.csv", "link.csv",
    }  # fmt: skip
    assert not list(tmp_path.rglob("outside.csv"))
    # The folder itself is the same run.
    assert len(import_paths(history, [run]).known) == 1


def test_an_archive_that_swells_is_stopped(history, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_FILE_BYTES", 1_000_000)
    monkeypatch.setattr(archive, "_BYTES_LIMIT", 1_500_000)
    file = tmp_path / "bomb.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("big.csv", b"0" * 50_000_000)
        zipped.writestr("good.csv", CSV)
        for index in range(2):
            zipped.writestr(f"{index}.csv", b"0" * 900_000)
    report = import_paths(history, [file])
    assert [taken.origin.name for taken in report.imported] == ["good.csv"]
    reasons = {path.name: reason for path, reason in by_path(report).items()}
    assert reasons["big.csv"] == "more than 1,000,000 bytes"
    assert reasons["1.csv"].startswith("more than ")


def test_an_entry_without_a_name_costs_itself(history, tmp_path):
    file = tmp_path / "nameless.zip"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("x", b"lost")
        made.writestr("good.csv", CSV)
    content = bytearray(file.read_bytes())
    # In the archive's list of its files the first one's name is a byte of its extra field instead.
    listed = content.index(b"PK\x01\x02")
    content[listed + 28 : listed + 32] = b"\0\0\1\0"
    file.write_bytes(content)
    assert [entry.filename for entry in zipfile.ZipFile(file).infolist()] == ["", "good.csv"]
    report = import_paths(history, [file])
    assert [taken.origin.name for taken in report.imported] == ["good.csv"]
    assert "its name leads out of the archive" in by_path(report).values()


# --- files that stand for more than they are ------------------------------------------------------


def own_run(folder: Path, table: str, rows: pa.Table) -> Path:
    """A directory like one of the history's, its table from elsewhere."""
    folder.mkdir(parents=True)
    document = record("bomb").to_json() | {"tables": {table: len(rows)}}
    (folder / "run.json").write_text(json.dumps(document))
    pq.write_table(rows, folder / f"{table}.parquet", compression="zstd", store_schema=False)
    return folder


def test_a_small_table_that_stands_for_gigabytes_is_refused_without_holding_them(tmp_path: Path) -> None:
    rows = 4000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 1_000_000]))
    folder = own_run(
        tmp_path / "bomb",
        "readings",
        pa.table({"run_id": ["bomb"] * rows, "page": ["p"] * rows, "text_raw": text}),
    )
    assert (folder / "readings.parquet").stat().st_size < 20_000
    with pytest.raises(InvalidFile, match="holds more than"):
        read_own_run(RunFiles(folder))
    assert pa.default_memory_pool().max_memory() < 2**30


def test_a_value_that_no_run_has_is_refused(history: History, tmp_path: Path) -> None:
    for number, value in enumerate((-1.0, float("nan"), float("inf"))):
        rows = pa.table(
            {"run_id": ["bomb"], "backend": ["eager"], "stage": ["sam"], "milliseconds": [value],
             "inside_prefill": [False], "aggregate": ["page"]}
        )  # fmt: skip
        folder = own_run(tmp_path / f"odd-{number}", "timings", rows)
        [skipped] = import_paths(history, [folder]).skipped
        assert "milliseconds" in skipped.reason and not history.run_ids()


def test_an_archive_of_500_folders_in_one_another_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr("a/" * 500 + "run.json", "{}")
    with History(tmp_path / "h") as history:
        [skipped] = import_paths(history, [tmp_path / "deep.zip"]).skipped
        assert "deeper than 24 folders" in skipped.reason
    assert not list((tmp_path / "temporary").iterdir())
