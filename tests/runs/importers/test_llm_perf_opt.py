"""Run directories and sweeps of llm-perf-opt: every figure against its file, what is damaged named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.llm_perf_opt import read_run
from tests.support.imported_files import imported, rows_of
from tests.support.paths import SHARED

SAMPLES = SHARED / "data" / "llm-perf-opt"
with_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
SAMPLE_RUNS = {"nsys/all-stage": None, "nsys/per-stage/prefill": "prefill", "nsys/per-stage/decode": "decode"}
"""Sample runs and the one stage whose kernels each captured."""
KERNELS = "nsys/summary_cuda_gpu_kern_sum.csv"
VIZ = "viz/0123456789abcdef0123456789abcdef"


# --- samples ------------------------------------------------------------------------------------


@with_samples
@pytest.mark.parametrize(("place", "stage"), SAMPLE_RUNS.items())
def test_every_figure_of_a_sample_run(place: str, stage: str | None) -> None:
    folder = SAMPLES / place
    (run,) = read_run(RunFiles(folder))
    # The only "input" of a run under Nsight is a command line: no page comes of it.
    record, tables = run.record, rows_of(run)
    assert tables.keys() == {"timings", "kernels"}
    columns = ["time_percent", "total_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"]
    kernels, printed = pd.DataFrame(tables["kernels"]), pd.read_csv(folder / KERNELS)
    assert kernels[[*columns, "name"]].to_numpy().tolist() == printed.to_numpy().tolist()
    assert {row["stage"] for row in tables["kernels"]} == {stage}
    text = (folder / "stakeholder_summary.md").read_text()
    stages = re.findall(r"^\|(prefill|decode|sam|clip|projector)\|(.+?)\|(.+?)\|$", text, re.MULTILINE)
    stages += [("vision", *re.findall(r"Vision ≈ ([\d.]+) ± ([\d.]+) ms", text)[0])]
    timings = tables["timings"]
    assert {(row["page"], row["backend"], row["calls"]) for row in timings} == {(None, "vendor", None)}
    assert all(row["inside_prefill"] == (row["stage"] not in ("prefill", "decode")) for row in timings)
    assert {(row["stage"], row["aggregate"]): row["milliseconds"] for row in timings} == {
        (name, of): float(value)
        for name, *pair in stages
        for of, value in zip(("mean", "std"), pair, strict=True)
    }
    reported: Any = record.environment["reported"]
    assert f"|Tokens|{reported['tokens']['mean']}" in text and reported["mfu"].keys() >= {"prefill", "decode"}
    assert f"|Peak TFLOPs (est.)|{reported['peak_tflops']}" in text
    assert f"Generated: {record.created.removesuffix('+00:00')}Z" in text
    assert {"gpu": record.gpu, **record.versions} == json.loads((folder / "env.json").read_text())
    assert record.command == (folder / "nsys/cmd.txt").read_text().strip()
    assert (record.source, record.profiled, record.backends) == ("llm-perf-opt", True, ("vendor",))
    assert (record.preset, record.dtype, record.device) == ("gundam", "bfloat16", "cuda:0")
    assert record.attention == "flash_attention_2" and record.notes is None
    assert record.settings["infer"]["max_new_tokens"]


@with_samples
def test_a_whole_tree_and_every_file_of_it_accounted_for(history: History) -> None:
    report = import_paths(history, [SAMPLES])
    origins = {run.origin.relative_to(SAMPLES).as_posix() for run in report.imported}
    assert origins == {*SAMPLE_RUNS, "ncu", "sweep/20251128-152354"}
    names = ("env.json", "config.yaml", "inputs.yaml", "stakeholder_summary.md", "nsys/cmd.txt", KERNELS)
    taken = {SAMPLES / place / name for place in SAMPLE_RUNS for name in names}
    taken |= {SAMPLES / "ncu/command.yaml", *SAMPLES.glob("ncu/kernel_*/*.csv")}
    taken |= set(SAMPLES.glob("sweep/*/*/*_sweep.json"))
    files = {path for path in SAMPLES.rglob("*") if path.is_file()}
    assert {item.path for item in report.skipped} == files - taken


# --- a run directory with everything, written by hand ---------------------------------------------


SUMMARY = """# Stakeholder Summary
- Generated: 2025-11-07T12:01:13+08:00
## Environment
|Key|Value|
| :---: | :---: |
|Device|GPU X|
|Peak TFLOPs (est.)|209.5|
## Aggregates
|Metric|Mean|Std|
| :---: | :---: | :---: |
|Prefill ms|98.5|64.0|
|Decode ms|707.25|12.5|
|Tokens|150.0|50.0|
## Per-Stage Timings (ms)
|Stage|Mean (ms)|Std (ms)|
| :---: | :---: | :---: |
|prefill|98.5|64.0|
|sam|29.75||
|clip|0.0|0.0|
## MFU
|Scope|MFU|
| :---: | :---: |
|Vision|0.000000|
|Decode|0.000211|
## Stage Takeaways
"""
TEXTS = [
    "<|ref|>title<|/ref|><|det|>[[10, 20, 110, 70]]<|/det|>\nInvoice<｜end▁of▁sentence｜>",
    "Second page",
]
PREDICTIONS = [
    {"image": "/data/a/page.png", "text_raw": TEXTS[0], "text_clean": "x", "prefill_ms": 95.5,
     "decode_ms": 1975.25, "vision_ms": 0.0, "tokens": 100, "tokens_per_s": 50.6},
    {"image": "/data/b/page.png", "text_raw": TEXTS[1], "prefill_ms": 105.0, "decode_ms": 2025.0,
     "vision_ms": 43.0, "tokens": 200},
    {"image": "/data/a/page.png", "text_raw": "other"},
    # Lines with an error are this project's own: its run directories have the same layout.
    {"image": "/data/c.png", "source": "c.png", "backend": "eager", "error": "c.png: cut short"},
]  # fmt: skip
COMPUTE = "../static_analysis/static_compute.json"
STATIC = {"metadata": {}, "total": {"params": 3, "flops": 4.0, "activations": 5.0}, "stages": {
    "sam": {"params": 95569152, "flops": 1.5e12, "flops_isolated": 1.25e12, "flops_analytic": None},
    "clip": {"params": 303177728, "flops": 0, "flops_analytic": 3.5e11},
    "prefill": {"params": 1, "flops": 8e11, "flops_analytic": 6e11},
    "decode": {"params": 0, "flops": 0.0, "flops_analytic": 1.14e9, "operators": {}, "notes": []},
}}  # fmt: skip
INFO = {"source_image": "/data/a/page.png", "text_raw": TEXTS[0], "result_mmd": "result.mmd",
        "timings_ms": {"prefill": 95.5, "decode": 1975.25, "vision": 0.0},
        "boxes": [{"x": 8, "y": 12, "w": 80, "h": 30, "text": "Invoice"}]}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory as the profile runner leaves it, not under Nsight."""
    root = tmp_path / "tree" / "20251107-101112"
    predictions = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in PREDICTIONS) + '{"im'
    files = {
        "env.json": json.dumps({"gpu": "GPU X", "cuda": "12.8", "torch": "2.9"}),
        "config.yaml": "model: {dtype: bf16, preprocess: {base_size: 640, image_size: 640, crop_mode: no}}\n"
        "infer: {max_new_tokens: inf}\ndevice: cuda:1\nuse_flash_attn: false\n"
        "pipeline: {nsys: {enable: false, nvtx_capture: prefill}}\n",
        "inputs.yaml": "count: 2\ninputs:\n- {path: /data/a/page.png}\n- {path: /data/b/page.png}\n",
        "torch_profiler/stakeholder_summary.md": SUMMARY,
        "torch_profiler/pred/predictions.jsonl": predictions,
        "static_analysis/static_compute.json": json.dumps(STATIC),
        f"torch_profiler/{VIZ}/info.json": json.dumps(INFO),
        f"torch_profiler/{VIZ}/result.mmd": "Invoice",
        f"torch_profiler/viz/{'f' * 32}/info.json": '{"source_image": "/data/d.png", "error": "no memory"}',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "torch_profiler" / VIZ / "images").mkdir()
    for name in ("result_with_boxes.jpg", "images/0.jpg"):
        Image.new("RGB", (8, 8)).save(root / "torch_profiler" / VIZ / name)
    return root


def test_a_run_with_all_its_files(history: History, run: Path) -> None:
    report = import_paths(history, [run.parent])
    (found,) = report.imported
    record = history.record(found.run_id)
    assert [item.reason[:22] for item in report.skipped] == ["line 5: not valid JSON"] and not record.profiled
    assert record.created == "2025-11-07T04:01:13+00:00" and record.notes is None
    assert (record.gpu, record.device, record.dtype) == ("GPU X", "cuda:1", "bfloat16")
    assert (record.preset, record.attention, record.command) == ("small", None, None)
    assert record.versions == {"cuda": "12.8", "torch": "2.9"}
    assert record.settings["infer"] == {"max_new_tokens": "inf"}
    assert record.environment["reported"] == {  # vision's MFU of 0 was not computed
        "tokens": {"mean": 150.0, "std": 50.0}, "mfu": {"decode": 0.000211}, "peak_tflops": 209.5
    }  # fmt: skip
    tables = rows_of(read_run(RunFiles(run))[0])
    first = tables["readings"][0]
    assert {name: value for name, value in first.items() if value is not None} == {
        "page": "a/page.png", "path": "/data/a/page.png", "preset": "small",
        "new_tokens": 100, "backend": "vendor", "text_raw": TEXTS[0],
        "boxes": [dict.fromkeys(first["boxes"][0]) | {
            "number": 0, "x1": 8.0, "y1": 12.0, "x2": 88.0, "y2": 42.0, "text": "Invoice"}],
        "times": [{"stage": "prefill", "milliseconds": 95.5, "calls": None},
                  {"stage": "decode", "milliseconds": 1975.25, "calls": None}],
    }  # fmt: skip
    # The boxes are those of the reading that has their text.
    rows = [[row[name] for name in ("page", "error", "text_raw", "boxes")] for row in tables["readings"][1:]]
    assert rows == [
        ["b/page.png", None, TEXTS[1], None], ["a/page.png (2)", None, "other", None],
        ["c.png", "c.png: cut short", None, None], ["d.png", "no memory", None, None],
    ]  # fmt: skip
    times = {(row["page"], row["stage"], row["aggregate"]): row["milliseconds"]
             for row in tables["timings"]}  # fmt: skip
    assert times == {
        ("a/page.png", "prefill", "page"): 95.5,  # vision 0.0: its writer's word for "not timed"
        ("a/page.png", "decode", "page"): 1975.25, ("b/page.png", "prefill", "page"): 105.0,
        ("b/page.png", "decode", "page"): 2025.0, ("b/page.png", "vision", "page"): 43.0,
        # clip of 0.0 did not run; sam has no deviation
        (None, "prefill", "mean"): 98.5, (None, "prefill", "std"): 64.0, (None, "sam", "mean"): 29.75,
        (None, "decode", "mean"): 707.25, (None, "decode", "std"): 12.5,
    }  # fmt: skip
    assert {(row["stage"], row["kind"]): row["flops"] for row in tables["stage_flops"]} == {
        ("sam", "traced"): 1.5e12, ("sam", "traced_isolated"): 1.25e12, ("clip", "analytic"): 3.5e11,
        ("prefill", "traced"): 8e11, ("prefill", "analytic"): 6e11, ("decode", "analytic_per_token"): 1.14e9,
    }  # fmt: skip
    gaps = history.query("flop_gaps", run_ids=[found.run_id])[0].set_index("stage")
    assert gaps.loc["prefill", ["counter", "gap_flops", "gap_percent", "milliseconds"]].tolist() == [
        "fvcore", -2e11, -25.0, 100.25,
    ]  # fmt: skip
    assert gaps.loc[["sam", "clip"], "gap_flops"].isna().all()  # one side alone; 0 is not known
    for name in ("result.mmd", "result_with_boxes.jpg", "images/0.jpg", "info.json"):
        whole = (run / "torch_profiler" / VIZ / name).read_bytes()
        assert (history.directory(found.run_id) / f"vendor/{VIZ}/{name}").read_bytes() == whole
    assert (history.directory(found.run_id) / "imported/stakeholder_summary.md").read_text() == SUMMARY
    with History(run.parents[1] / "second", run.parents[1] / "history") as second_history:
        known = import_paths(second_history, [run]).known
    assert [each.run_id for each in known] == [found.run_id]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        *((COMPUTE, json.dumps(STATIC).replace("1500000000000.0", wrong), "") for wrong in
          ("NaN", "-1", "1e400", '"100"', "true", "9" * 5000)),
        (COMPUTE, "[" * 100_000, "nested too deeply"),
        (COMPUTE, '{"stages": []}', "not what such a file holds"),
        ("stakeholder_summary.md", "\x00" * 100, "zero bytes"),
        *(("stakeholder_summary.md", SUMMARY.replace(old, new), "") for old, new in (
            ("|prefill|98.5|64.0|", "|prefill|99.5|64.0|"), ("707.25", "fast"), ("|12.5|", "|12."),
            ("|prefill|98.5|64.0|", "|prefill|98.5|64.0|\n|prefill|98.5|64.0|"), ("## Stage Takeaways", ""),
            (SUMMARY[SUMMARY.index("## MFU") :], ""), ("-11-07T", "-13-07T"), ("707.25", "1e400"),
        )),
        ("pred/predictions.jsonl", '{"image": "x.png", "prefill_ms": "fast"}', "line|page could be read"),
        ("pred/predictions.jsonl", '{"image": "x.png", "prefill_ms": -1}', "a time below 0"),
        ("pred/predictions.jsonl", '{"image": "x.png", "tokens": 1.5}', "tokens is 1.5, not of type int"),
        ("pred/predictions.jsonl", '{"text_raw": "no image"}', "names no image"),
        (f"{VIZ}/info.json", '{"source_image": "x", "boxes": [{"x": 1}]}', "not what such a file holds"),
        (f"{VIZ}/result_with_boxes.jpg", "<script>", "not a JPEG picture"),
        ("../env.json", "", "empty"),
        *(("../inputs.yaml", text, "YAML") for text in ("a: &x [1]\nb: *x", "a: [", "a: !!python/none {}")),
        *(("../inputs.yaml", text, "") for text in ("a: .nan", "- 1")),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named_and_the_rest_is_taken(
    run: Path, name: str, content: str, reason: str
) -> None:
    file = (run / "torch_profiler" / name).resolve()
    file.write_text(content)
    files = RunFiles(run)
    (found,) = read_run(files)
    reasons = {item.path: item.reason for item in files.skipped}
    assert re.search(reason, reasons[file]) and "\n" not in reasons[file] and rows_of(found)["timings"]


def test_links_inside_a_run_are_not_followed(history: History, tmp_path: Path, run: Path) -> None:
    (run / "torch_profiler").rename(tmp_path / "elsewhere")
    (run / "torch_profiler").symlink_to(tmp_path / "elsewhere")
    report = import_paths(history, [run])
    (found,) = report.imported
    assert [item.path for item in report.skipped] == [run / "torch_profiler"]
    assert history.tables(found.run_id).keys() == {"stage_flops"}


# --- sweeps ---------------------------------------------------------------------------------------


def cost(flops: float, tensor: float) -> dict[str, float]:
    sizes = {"io_tb": 0.008, "weights_gb": 0.5, "activations_gb": 0.25, "kv_gb": 0.125}
    return {"flops_tflops": flops, "flops_tensor_tflops": tensor, **sizes}


COSTS = {"prefill_eager": cost(2.496869662208002, 2.495322771456002), "prefill_flash": None,
         "prefill_vendor": {"flops_tflops": 2.49725842176, "kv_gb": 0.125, "io_tb": 0.1}}  # fmt: skip
EAGER = {"flops": 2_496_869_662_208, "other_flops": 1_546_890_752, "bytes": 1e9, "weight_bytes": 2.0**29,
         "tile_columns": 2, "tile_rows": 1, "context": 493, "steps": 100}  # fmt: skip
SWEEP = "e2e_vision_prefill/e2e_vision_prefill_sweep.json"


def sweep(count: int = 1, **other: Any) -> str:
    point = {
        "image_tokens_total": 483, "height_crop_num": 1, "width_crop_num": 2, "batch_size": 1,
        "context_len": 493, "decode_steps": 100, "prefill_stagecost": COSTS,
    } | other  # fmt: skip
    return json.dumps({"model_id": "deepseek-ocr-3b", "num_points": count, "points": [point]})


def test_a_folder_of_sweeps_is_one_run_and_what_is_left_out_is_named(
    history: History, tmp_path: Path
) -> None:
    folder = tmp_path / "20251128-152354"
    for name, text in (
        (SWEEP, sweep()), ("e2e_decode/e2e_decode_sweep.json", "{"),
        ("e2e_decode/responsive-tflops-by-tpot.json", "{}"),
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    report = import_paths(history, [folder])
    (run,) = report.imported
    record = history.record(run.run_id)
    assert (record.created[:19], record.source) == ("2025-11-28T15:23:54", "sweep")
    assert "Model deepseek-ocr-3b." in str(record.notes)
    # Whole FLOPs; a multiply-add is 2. Torch's counter knows the cache's size alone.
    points = {row["engine"]: row for row in history.tables(run.run_id)["sweep_points"].to_pylist()}
    assert points.keys() == {"eager", "counted"} and EAGER.items() <= points["eager"].items()
    assert (points["counted"]["flops"], points["counted"]["bytes"]) == (2_497_258_421_760, None)
    (gap,) = history.query("flop_gaps", run_ids=[run.run_id])[0].to_dict("records")
    assert (gap["stage"], gap["shape"]) == ("prefill", "2x1 tiles, batch 1, context 493, 100 steps")
    assert (gap["counter"], gap["gap_flops"]) == ("torch", 2_496_869_662_208 - 2_497_258_421_760)
    assert gap["no_bound"] == "stage not timed"
    assert {item.path.name: item.reason[:14] for item in report.skipped} == {
        "e2e_decode_sweep.json": "not valid JSON", "responsive-tflops-by-tpot.json": "not a file tha"
    }  # fmt: skip
    (known,) = import_paths(history, [folder / SWEEP]).known
    assert known.run_id == run.run_id


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (sweep(2), "1 points, it says 2"), (sweep()[:-9], "not valid JSON"), ("[]", "not a JSON object"),
        (sweep(width_crop_num=0), "a point of 0x1 tiles"), (sweep(width_crop_num=1.5), "cannot hold 1.5"),
        (sweep(prefill_stagecost={"prefill_eager": cost(1e9, 0)}), "out of all bounds"),
        (sweep(prefill_stagecost={"prefill_eager": cost(-1, 0)}), "out of all bounds"),
        (sweep(prefill_stagecost=[1]), "not what such a file holds"),
        (sweep(prefill_stagecost={}), "points without FLOPs"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=re.escape(reason)):
        imported(tmp_path / Path(SWEEP).name, text)
