"""Traces and tables of torch.profiler: kernels by stage, worked out by hand; read within bounds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers import torch_trace
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.torch_trace import read_trace
from tests.support.imported_files import imported


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **arguments: Any) -> dict[str, Any]:
    named = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid}
    return {**named, "ts": ts, "dur": dur, "args": arguments}


# us. prefill with sam inside, launched on thread 1; decode on thread 2. Kernels run later than launched.
EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    event("user_annotation", "prefill", 0, 1000),
    event("user_annotation", "sam", 0, 300),
    event("user_annotation", "decode", 0, 5000, tid=2),
    event("user_annotation", "decode", 6000, 1000, tid=2),
    event("cuda_runtime", "cudaLaunchKernel", 200, 5, correlation=1),
    event("cuda_driver", "cuLaunchKernel", 201, 2, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 500, 5, correlation=2),
    event("cuda_runtime", "cudaLaunchKernel", 500, 5, tid=2, correlation=3),
    event("cuda_driver", "cuLaunchKernelEx", 6100, 5, tid=2, correlation=4),
    event("kernel", "void gemm<float>(float*)", 3000.0, 60.5, tid=7, correlation=1, device=0, stream=7),
    event("kernel", "void gemm<float>(float*)", 3100.0, 20.0, tid=7, correlation=2),
    event("kernel", "copy", 6000.0, 10.0, tid=7, correlation=3),
    event("kernel", "copy", 6100.0, 30.0, tid=7, correlation=4),
    event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 9000.0, 8.0, tid=7, correlation=99),
]
EXPECTED = {
    ("sam", "void gemm<float>(float*)"): (60_500.0, 1),
    ("prefill", "void gemm<float>(float*)"): (20_000.0, 1),
    ("decode", "copy"): (40_000.0, 2),
    (None, "Memcpy HtoD (Pageable -> Device)"): (8_000.0, 1),
}


def trace(events: list[dict[str, Any]] = EVENTS, **more: Any) -> str:
    devices = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events, **more})


OLD = [each | {"cat": {"kernel": "Kernel", "cuda_runtime": "Runtime",
"cuda_driver": "Runtime"}.get(each.get("cat", ""), each.get("cat"))} for each in EVENTS]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trace.json", trace().encode()),
        ("trace.json.gz", gzip.compress(trace(distributedInfo={"rank": 0}).encode())),
        ("run.pt.trace.json", json.dumps(json.loads(trace()), indent=2).encode()),
        ("events.json", json.dumps(EVENTS).encode()),
        ("of-2021.json", trace(OLD).encode()),
        ("from-autograd.json", b"\xef\xbb\xbf" + trace().encode()),
    ],
)  # fmt: skip
def test_a_trace_has_kernels_by_stage_and_the_stages(tmp_path: Path, name: str, content: bytes) -> None:
    record, tables = imported(tmp_path / name, content)
    assert (record.source, record.profiled) == ("torch", True)
    assert record.gpu == (None if name == "events.json" else "NVIDIA H200")
    assert {
        (row["stage"], row["name"]): (row["total_ns"], row["instances"]) for row in tables["kernels"]
    } == EXPECTED
    means = {
        row["stage"]: (row["milliseconds"], row["calls"])
        for row in tables["timings"]
        if row["aggregate"] == "mean"
    }
    assert means == {"prefill": (1.0, 1), "sam": (0.3, 1), "decode": (3.0, 2)}


def test_stages_of_a_page_are_those_of_its_stage_timer(tmp_path: Path) -> None:
    """A page of 12 tokens on an H200: what our NVTX stages mark, and the stage timer of the same page."""
    file = Path(__file__).parent / "data" / "torch-fast-page.json.gz"
    timer = json.loads(gzip.decompress(file.read_bytes()))["stageTimer"]
    _, tables = imported(tmp_path / "t.json.gz", file.read_bytes())
    found = {row["stage"]: row["milliseconds"] for row in tables["timings"] if row["aggregate"] == "mean"}
    assert found.keys() == timer.keys()
    for stage, within in {"sam": 2, "clip": 2, "prefill": 2, "decode": 3, "preprocess": 3}.items():
        assert found[stage] == pytest.approx(timer[stage], rel=within / 100), stage


def test_without_launches_a_kernel_is_of_the_stage_that_was_open_when_it_began(tmp_path: Path) -> None:
    plain = [event("user_annotation", "decode", 990, 100), event("kernel", "gemm", 1000, 60, tid=7)]
    on_device = [event("gpu_user_annotation", "sam", 990, 100, tid=7), plain[1]]
    for events, stage in ((plain, "decode"), (on_device, "sam")):
        _, found = imported(tmp_path / "t.json", trace(events))
        assert [row["stage"] for row in found["kernels"]] == [stage]


FIRST = '"traceEvents": ['


@pytest.mark.parametrize(
    "name",
    [r"torch\cuda\__init__.py(2): f", "C:\\dir\\", '{"a": "b", "c"}(1): g', 'f("x", "y")', "a\x01\x02\n"],
)
def test_an_event_that_is_no_json_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    """Names of stacks by Windows, and of compiled code; control characters alone are read."""
    broken = '{"ph": "X", "cat": "python_function", "name": "NAME", "pid": 1, "ts": 1, "dur": 1},'
    broken = broken.replace("NAME", name)
    text = trace().replace(FIRST, FIRST + broken + broken)
    record, found = imported(tmp_path / "t.json", text)
    rows = {(row["stage"], row["name"]): row["total_ns"] for row in found["kernels"]}
    assert rows == {of: total for of, (total, _) in EXPECTED.items()}
    said = f"left out, the first at character {text.index(broken)}"
    assert (said in (record.notes or "")) == ("\x01" not in name)


def kernel(**other: Any) -> str:
    return trace([event("kernel", "k", 1, 1) | other])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (trace()[:-200], "not whole"),
        (trace().replace(FIRST, FIRST + "[" * 100_000), "nested too deeply|not JSON"),
        (trace([]), "without kernels and without ranges"),
        *((kernel(**wrong), "without a time") for wrong in
          ({"dur": -2}, {"dur": float("inf")}, {"dur": "x"}, {"ts": 10**400})),
        ('{"traceEvents" 1}', "no list traceEvents"),
        ('{"traceEvents": [1 2', "not whole"),
        ('{"about": "' + "x" * 30_000_000 + trace()[1:], "no list traceEvents"),
        ('{"traceEvents": [{"ph": "X", "name": "' + "x" * 30_000_000, "an event of more than 16 MiB"),
    ],
)  # fmt: skip
def test_a_trace_that_is_not_whole_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(InvalidFile, match=reason):
        read_trace(RunFiles(tmp_path / "t.json"))


def test_a_trace_of_gigabytes_is_refused_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_trace, "TRACE_LIMIT", 12 * 1024 * 1024)
    one = json.dumps(event("cpu_op", "aten::mm", 1, 2)) + ",\n"
    packed = gzip.compress(('{"traceEvents": [' + one * 200_000).encode(), 1)
    (tmp_path / "t.json.gz").write_bytes(packed)
    with pytest.raises(InvalidFile, match=r"more than 12 MiB unpacked: profile fewer steps"):
        read_trace(RunFiles(tmp_path / "t.json.gz"))
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(trace().encode())[:-4])
    with pytest.raises(InvalidFile, match=r"not a whole gzip file"):
        read_trace(RunFiles(tmp_path / "t.json.gz"))
    monkeypatch.setattr(torch_trace, "EVENT_LIMIT", 5)
    (tmp_path / "t.json").write_text(trace())
    with pytest.raises(InvalidFile, match="more than 5 events"):
        read_trace(RunFiles(tmp_path / "t.json"))
