"""Benches of servers and OmniDocBench's evaluation, each figure with its unit; forms refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.runs.importers.benchmarks import read_results
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.store import History

# Keys as `vllm bench serve --save-result`, `sglang.bench_serving`, `llama-bench -o` and `llmperf` write them.
VLLM = {
    "date": "20260722-041843", "endpoint_type": "openai-chat", "backend": "openai-chat", "label": None,
    "model_id": "deepseek-ai/DeepSeek-OCR", "tokenizer_id": "deepseek-ai/DeepSeek-OCR", "num_prompts": 200,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 16, "duration": 203.5, "completed": 199,
    "failed": 1,
    "total_input_tokens": 40000, "total_output_tokens": 25600, "request_throughput": 0.98,
    "request_goodput": None,
    "output_throughput": 125.79, "total_token_throughput": 322.34, "max_output_tokens_per_s": 200.0,
    "mean_ttft_ms": 95.6, "median_ttft_ms": 95.7, "std_ttft_ms": 12.7, "p99_ttft_ms": 143.3,
    "mean_tpot_ms": 27.9,
    "p90_tpot_ms": 30.5, "mean_itl_ms": 27.8, "p99.9_itl_ms": 44.0, "mean_e2el_ms": 3600.5,
    "ttfts": [0.1, 0.2], "generated_texts": ["</script>"],
}  # fmt: skip
OF_VLLM = {
    ("concurrency", "limit"): (16, "requests"), ("duration", "total"): (203.5, "s"),
    ("completed", "total"): (199, "requests"), ("failed", "total"): (1, "requests"),
    ("input", "total"): (40000, "tokens"), ("output", "total"): (25600, "tokens"),
    ("requests", "rate"): (0.98, "requests/s"), ("output", "rate"): (125.79, "tokens/s"),
    ("input and output", "rate"): (322.34, "tokens/s"),
    ("ttft", "mean"): (95.6, "ms"), ("ttft", "median"): (95.7, "ms"), ("ttft", "std"): (12.7, "ms"),
    ("ttft", "p99"): (143.3, "ms"), ("tpot", "mean"): (27.9, "ms"), ("tpot", "p90"): (30.5, "ms"),
    ("itl", "mean"): (27.8, "ms"), ("itl", "p99.9"): (44.0, "ms"), ("e2e", "mean"): (3600.5, "ms"),
}  # fmt: skip
SGLANG = {
    "backend": "sglang", "dataset_name": "sharegpt", "request_rate": 5.0, "max_concurrency": 256,
    "duration": 204.5,
    "completed": 1000, "total_input_tokens": 302118, "request_throughput": 4.889, "input_throughput": 1477.08,
    "output_throughput": 957.16, "mean_e2e_latency_ms": 2409.5, "median_e2e_latency_ms": 1537.9,
    "mean_ttft_ms": 91.7,
    "p99_ttft_ms": 327.9, "mean_tpot_ms": 11.8, "p95_itl_ms": 30.25, "concurrency": 11.8,
    "accept_length": None,
}  # fmt: skip
OF_SGLANG = {
    ("asked", "rate"): (5.0, "requests/s"), ("concurrency", "limit"): (256, "requests"),
    ("duration", "total"): (204.5, "s"), ("completed", "total"): (1000, "requests"),
    ("input", "total"): (302118, "tokens"), ("requests", "rate"): (4.889, "requests/s"),
    ("input", "rate"): (1477.08, "tokens/s"), ("output", "rate"): (957.16, "tokens/s"),
    ("e2e", "mean"): (2409.5, "ms"), ("e2e", "median"): (1537.9, "ms"), ("ttft", "mean"): (91.7, "ms"),
    ("ttft", "p99"): (327.9, "ms"), ("tpot", "mean"): (11.8, "ms"), ("itl", "p95"): (30.25, "ms"),
    ("concurrency", "mean"): (11.8, "requests"),
}  # fmt: skip
LLMPERF = {
    "version": "2023-08-31", "name": "x_summary", "model": "x", "mean_input_tokens": 550,
    "num_concurrent_requests": 5,
    "results_inter_token_latency_s_quantiles_p50": 0.0188, "results_ttft_s_quantiles_p50": 0.2035,
    "results_ttft_s_mean": 0.25, "results_ttft_s_stddev": 0.01, "results_end_to_end_latency_s_max": 4.5,
    "results_request_output_throughput_token_per_s_mean": 40.0,
    "results_mean_output_throughput_token_per_s": 198.25,
    "results_num_completed_requests": 150, "results_number_errors": 0, "timestamp": 1_700_000_000,
}  # fmt: skip
OF_LLMPERF = {
    ("input", "mean"): (550, "tokens"), ("concurrency", "limit"): (5, "requests"), ("itl", "p50"): (18.8,
    "ms"),
    ("ttft", "p50"): (203.5, "ms"), ("ttft", "mean"): (250.0, "ms"), ("ttft", "std"): (10.0, "ms"),
    ("e2e", "max"): (4500.0, "ms"), ("output of a request", "mean"): (40.0, "tokens/s"),
    ("output", "rate"): (198.25, "tokens/s"), ("completed", "total"): (150, "requests"),
    ("failed", "total"): (0, "requests"),
}  # fmt: skip


Taken = Callable[[str, str], list[tuple[Any, list[dict[str, Any]]]]]


@pytest.fixture
def taken(tmp_path: Path, imported: Callable[[Path], Any]) -> Taken:
    """The record and the figures of each run in a file of that name and content."""

    def take(name: str, content: str) -> list[tuple[Any, list[dict[str, Any]]]]:
        (tmp_path / name).write_text(content)
        return [(record, tables["reported"].to_pylist()) for record, tables in imported(tmp_path / name)]

    return take


def figures(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, str]]:
    assert {row["subject"] for row in rows} == {"serving"}
    return {(row["figure"], row["statistic"]): (pytest.approx(row["value"]), row["unit"]) for row in rows}


@pytest.mark.parametrize(
    ("name", "content", "engine", "expected"),
    [
        ("vllm.json", json.dumps(VLLM), "vllm bench serve", [OF_VLLM]),
        ("vllm.json", json.dumps(VLLM, indent=4), "vllm bench serve", [OF_VLLM]),
        ("appended.json", json.dumps(VLLM) + "\n" + json.dumps(VLLM | {"failed": 2}) + "\n",
        "vllm bench serve",
         [OF_VLLM, OF_VLLM | {("failed", "total"): (2, "requests")}]),
        ("detailed.json", json.dumps({"request_throughput": 0.98, "itls": [[0.5] * 99] * 999} | VLLM),
        "vllm bench serve",
         [OF_VLLM]),
        ("sglang_0722_16.jsonl", json.dumps(SGLANG) + "\n", "sglang.bench_serving", [OF_SGLANG]),
        ("two.jsonl", json.dumps(SGLANG) + "\n" + json.dumps(SGLANG | {"completed": 9}) + "\n",
        "sglang.bench_serving",
         [OF_SGLANG, OF_SGLANG | {("completed", "total"): (9, "requests")}]),
        ("x_summary.json", json.dumps(LLMPERF), "llmperf", [OF_LLMPERF]),
        ("x_summary.json", json.dumps(LLMPERF, indent=1), "llmperf", [OF_LLMPERF]),
    ],
)  # fmt: skip
def test_a_bench_of_a_server_has_its_figures_in_ms_and_a_second(
    taken: Taken, name: str, content: str, engine: str, expected: list[dict[Any, Any]]
) -> None:
    runs = taken(name, content)
    assert {record.engine for record, _ in runs} == {engine}
    assert {record.source for record, _ in runs} == {"serving"} and not any(
        record.profiled for record, _ in runs
    )
    assert [figures(rows) for _, rows in runs] == expected


def test_the_time_and_the_model_are_the_files_own(taken: Taken) -> None:
    ((record, _),) = taken("v.json", json.dumps(VLLM | {"label": "x"}))
    assert record.created == "2026-07-22T04:18:43+00:00"
    assert record.notes == "vllm bench serve in v.json. Model deepseek-ai/DeepSeek-OCR."
    ((record, _),) = taken("l.json", json.dumps(LLMPERF | {"model": "y"}))
    assert record.created == "2023-11-14T22:13:20+00:00"


# 512 tokens in 70.28566 ms; 128 new ones at 60.5 a second.
LLAMA = [
    {"build_commit": "8cf427ff", "gpu_info": "NVIDIA GeForce RTX 4080", "model_type": "qwen2 7B",
    "n_prompt": 512, "n_gen": 0,
     "n_depth": 0, "test_time": "2025-04-24T11:57:09Z", "avg_ns": 70285660, "stddev_ns": 982040,
     "avg_ts": 7285.67, "stddev_ts": 100.06},
    {"build_commit": "8cf427ff", "gpu_info": "NVIDIA GeForce RTX 4080", "model_type": "qwen2 7B",
    "n_prompt": 0, "n_gen": 128,
     "n_depth": 4096, "test_time": "2025-04-24T11:58:09Z", "avg_ns": 2115702479, "stddev_ns": 1000000,
     "avg_ts": 60.5, "stddev_ts": 0.1},
]  # fmt: skip
_AS_CSV = (
    "\n".join([",".join(LLAMA[0]), *(",".join(f'"{value}"' for value in test.values()) for test in LLAMA)])
    + "\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [("b.json", json.dumps(LLAMA)), ("b.jsonl", "\n".join(map(json.dumps, LLAMA))), ("b.csv", _AS_CSV)],
)
def test_the_tests_of_a_llama_bench_are_one_run(taken: Taken, name: str, content: str) -> None:
    ((record, rows),) = taken(name, content)
    assert (record.engine, record.gpu, record.created) == (
        "llama-bench",
        "NVIDIA GeForce RTX 4080",
        "2025-04-24T11:57:09+00:00",
    )
    assert {(row["subject"], row["figure"], row["statistic"]): (row["value"],
    row["unit"]) for row in rows} == {
        ("pp512", "tokens", "mean"): (7285.67, "tokens/s"), ("pp512", "tokens", "std"): (100.06, "tokens/s"),
        ("pp512", "time", "mean"): (pytest.approx(70.28566), "ms"), ("pp512", "time",
        "std"): (pytest.approx(0.98204), "ms"),
        ("tg128 @ d4096", "tokens", "mean"): (60.5, "tokens/s"), ("tg128 @ d4096", "tokens", "std"): (0.1,
        "tokens/s"),
        ("tg128 @ d4096", "time", "mean"): (pytest.approx(2115.702479), "ms"), ("tg128 @ d4096", "time",
        "std"): (1.0, "ms"),
    }  # fmt: skip


EVALUATION = {
    "text_block": {
        "all": {"Edit_dist": {"ALL_page_avg": 0.0304, "edit_whole": 0.05}},
        "group": {},
        "page": {"Edit_dist": {"ALL": 0.0304, "language: english": 0.02, "sample_count": 3}},
    },
    "display_formula": {"all": {"Edit_dist": {"ALL_page_avg": "NaN"}, "CDM": {"all": 0.96}}, "group": {}},
    "table": {"all": {"TEDS": {"all": 0.94}, "TEDS_structure_only": {"all": 0.97}}, "group": {}},
    "reading_order": {"all": {"Edit_dist": {"ALL_page_avg": 0.129}}},
}


def test_an_evaluation_of_omnidocbench_has_its_figures_by_element_and_pages(taken: Taken) -> None:
    ((record, rows),) = taken("predictions_quick_match_metric_result.json", json.dumps(EVALUATION))
    assert record.source == "omnidocbench"
    found = {(row["subject"], row["figure"], row["statistic"]): row["value"] for row in rows}
    assert found.pop(("text_block", "Edit_dist", "page: sample_count")) == 3
    assert found == {
        ("text_block", "Edit_dist", "ALL_page_avg"): 0.0304, ("text_block", "Edit_dist", "edit_whole"): 0.05,
        ("text_block", "Edit_dist", "page: ALL"): 0.0304, ("text_block", "Edit_dist",
        "page: language: english"): 0.02,
        ("display_formula", "CDM", "all"): 0.96, ("table", "TEDS", "all"): 0.94,
        ("table", "TEDS_structure_only", "all"): 0.97, ("reading_order", "Edit_dist", "ALL_page_avg"): 0.129,
    }  # fmt: skip


def test_an_evaluation_of_one_element_is_taken(tmp_path: Path) -> None:
    only = {"table": {"all": {"TEDS": {"all": 0.85}}, "group": {}, "page": {"TEDS": {"ALL": 0.845}}}}
    (tmp_path / "metric_result.json").write_text(json.dumps(only))
    (found,) = read_results(tmp_path / "metric_result.json")
    assert [(row["subject"], row["statistic"], row["value"]) for row in found.tables["reported"]] == [
        ("table", "all", 0.85), ("table", "page: ALL", 0.845),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["k.csv", "t.json", "r.nsys-rep", "a.zip", "x"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, history_of_all: History, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (skipped,) = import_paths(history_of_all, [tmp_path / name]).skipped
    assert "not a regular file" in skipped.reason


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("r.nsys-rep", "x", "in Nsight Systems' own form; print it with nsys stats --format csv"),
        ("r.qdrep", "x", "in Nsight Systems' own form"),
        ("r.qdstrm", "x", "QdstrmImporter"),
        ("k.ncu-rep", "x", "ncu --import FILE --csv --page details"),
        ("s.txt", "Processing [r.sqlite] with [x.py]... \n\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum)"
        ":\n\n Time (%)  Total\n",
         "a table of Nsight Systems that is no CSV of its own"),
        ("o.csv", "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n1.0,1,1.0,1."
        "0,1.0,1.0,0.0,[CUDA memset]\n",
         "a report of nsys stats that has no kernels, calls or stages"),
        ("n.csv", "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name\n:a,Pu"
        "shPop,1,1,1,1,5,5.0,k\n",
         "a report of nsys stats that has no kernels, calls or stages"),
        ("e.csv", "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
         "100.0,10,1,10.0,10.0,10,10,0.0,poll\n", "poll is no call of CUDA: give cuda_api_sum"),
        ("g.csv", "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style"
        ",Range\n"
         "100.0,10,1,10.0,10.0,10,10,0.0,PushPop,:forward\n", "no range of it is a stage"),
        ("p.txt", "==PROF== Connected to process 1\n  gemm (64, 1, 1)x(256, 1, 1), Context 1\n    Section: "
        "GPU Speed Of Light\n",
         "a print of Nsight Compute for people"),
        ("results.stats.csv", '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n', "rocprof"),
        ("mlperf.log", ':::MLLOG {"namespace": "", "time_ms": 1, "key": "run_start"}\n', "a log of MLPerf"),
        ("mlperf_log_summary.txt", "=" * 48 + "\nMLPerf Results Summary\n" + "=" * 48 + "\n",
        "a log of MLPerf"),
        ("box.txt", "+--+\n| Time (%) | Total Time (ns) | Name |\n+--+\n", "nsys stats --format csv"),
        ("n.json", '[{"Time (%)":100.0,"Total Time (ns)":4,"Name":"k"}]', "nsys stats --format csv"),
        ("de.csv", 'Time (%);Total Time (ns);Instances;Name\n75,0;3000;3;k\n', "nsys stats --format csv"),
        ("q.csv", "Count,QCount,TAvg (ns),API Name,Kernel Name\n1,1,10.0,cuLaunchKernel,k\n",
         "a report of nsys stats that has no kernels"),
        ("m.csv", "Time (%),Total Time (ns),Instances,Source,Name\n100.0,5,1,MPI,MPI_Send\n",
         "a report of nsys stats that has no kernels"),
        ("p.txt", "[7] app@127.0.0.1\n  k(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n",
         "a print of Nsight Compute for people"),
        ("l.txt", "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - no permission\n",
         "a log of Nsight Compute without a table; profile with ncu --csv"),
        ("renamed", "NVR\0", "ncu --import FILE --csv --page details"),
        ("nvprof.csv", '==12== NVPROF is profiling process 12\n"Type","Time(%)"\n', "a profile of nvprof"),
        ("roc.csv", '"Kind","Agent_Id","Queue_Id","Kernel_Name"\n', "rocprof"),
        ("roc1.csv", "Index,KernelName,gpu-id\n", "rocprof"),
        ("perf.txt", "python 12 [003] 1234.567890:  250000 cycles:ppp: \n\tffff81 f+0x5 ([k])\n",
         "stacks of perf"),
        ("stacks.txt", "m.py(1): f;aten::mm;cudaLaunchKernel 12\nm.py(1): f 3\n", "export_chrome_trace"),
        ("lb.md", "| model | size |   test |    t/s |\n| --- | --- | --- | --- |\n", "llama-bench -o json"),
        ("b.txt", "===== Serving Benchmark Result =====\nMean TTFT (ms): 1\n", "--save-result"),
        ("t.json", '{"elapsed_time": 30.0, "num_requests": 20}', "--save-result"),
        ("i.json", '[{"error_code": null, "inter_token_latency_s": 0.02}]', "_summary.json"),
        ("run.json5", '{"notebook_metric_summary": {}}', "import the *_metric_result.json"),
        ("page.pdf", "%PDF-1.7\n", "dsocr run FILE"),
        ("v.json", json.dumps({"request_throughput": -1.0, "mean_ttft_ms": -2.0}), "without figures"),
        ("v.json", json.dumps(dict.fromkeys(VLLM)), "without figures"),
        ("v.json", json.dumps([VLLM, 3]), "not a list of results"),
        ("v.json", json.dumps(VLLM)[:-9], "JSON"),
    ],
)  # fmt: skip
def test_a_form_that_is_not_taken_is_named_with_what_to_do(
    tmp_path: Path, history_of_all: History, name: str, content: str, reason: str
) -> None:
    (tmp_path / name).write_text(content)
    report = import_paths(history_of_all, [tmp_path / name])
    assert not report.imported
    (skipped,) = report.skipped
    assert reason in skipped.reason
