"""Profiles of Nsight Systems, Nsight Compute and torch.profiler: figures worked out by hand, whatever the
version, unit and language; what is not whole is refused with its place.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import nsys, torch_trace
from dsocr_core.runs.importers.detect import import_paths
from tests.support.imported_files import Rows, imported
from tests.support.paths import SHARED

DATA = Path(__file__).parent / "data"
Kernels = dict[tuple[str | None, str], tuple[float, int]]


def sums(rows: Rows) -> Kernels:
    """Total and instances of each kernel by stage and name."""
    return {(row["stage"], row["name"]): (row["total_ns"], row["instances"]) for row in rows}


def means(rows: Rows) -> dict[str, tuple[float, int]]:
    return {row["stage"]: (row["milliseconds"], row["calls"]) for row in rows if row["aggregate"] == "mean"}


# --- tables of Nsight Systems -----------------------------------------------------------------------

HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
ROW = "75.0,3000,2,1500.0,1500.0,1000,2000,707.1,"
CSV = f'{HEAD}{ROW}"void gemm<(int)4, (bool)0>(T1)"\n25.0,1000,4,250.0,250.0,250,250,0.0,copy\n'
GERMAN = HEAD.replace(",", ";") + "75,0;3.000;2;1.500,0;1.500,0;1.000;2.000;707,1;gemm, f\n"
NVTX = HEAD.replace("Name", "Style,Range")
DECODE = "6000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,"
SAID = "Generating SQLite file r.sqlite\nProcessing [r.sqlite] with [/a/reports/cuda_gpu_kern_sum.py]... \n"
US, MS = (HEAD.replace("(ns)", f"({unit})") for unit in ("us", "ms"))
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,Device,Ctx,Strm,Name\n"
    '100,60000,1,64,1,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n'
    "200,10000,2,,,NVIDIA A100 (0),1,7,[CUDA memcpy Host-to-Device]\n"
    '300,20000,3,64,1,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n'
)
BOTH = {"void gemm<(int)4, (bool)0>(T1)": (3000.0, 2), "copy": (1000.0, 4)}
FORMS: dict[str, tuple[str | bytes, dict[str, tuple[float, int]]]] = {
    "after the program's lines": (f"step 1: done, 4 pages\nloss (ms) 3\n\n{SAID}{CSV}\n", BOTH),
    "told twice": (f"{CSV}\n{CSV}", BOTH),
    "lines of Windows": (CSV.replace("\n", "\r\n"), BOTH),
    "byte order mark": ("\ufeff" + CSV, BOTH),
    "PowerShell": (CSV.encode("utf-16"), BOTH),
    "thousands": (HEAD + '75.0,"3,000",2,"1,500.0",1500.0,"1,000","2,000",0,g\n', {"g": (3000.0, 2)}),
    "2020": ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n75,3000,2,1500,1000,2000,g",
             {"g": (3000.0, 2)}),
    "quoted": ("\n".join('"' + line.replace(",", '","') + '"' for line in (HEAD[:-1], ROW + "g")) + "\n",
               {"g": (3000.0, 2)}),
    "--format tsv": ((HEAD + ROW).replace(",", "\t") + "gemm, f\n", {"gemm, f": (3000.0, 2)}),
    "a German spreadsheet": (GERMAN, {"gemm, f": (3000.0, 2)}),
    "decimal commas in quotes": (HEAD + '"75,0",3.000,2,"1.500,0","1.500,0",1.000,2.000,"707,1",g\n',
                                 {"g": (3000.0, 2)}),
    "--timeunit usec": (US + "75.0,3.000,2,1.500,1.500,1.000,2.000,0.707,g\n", {"g": (3000.0, 2)}),
    "--timeunit msec": (MS + "75.0,0.003,2,0.002,0.002,0.001,0.002,0.001,g\n", {"g": (3000.0, 2)}),
    # Copies beside kernels; a trace has every launch.
    "cuda_gpu_sum": (HEAD.replace("Name", "Category,Operation") + f"{ROW}CUDA_KERNEL,gemm\n"
                     "25.0,1000,4,250.0,250.0,250,250,0.0,MEMORY_OPER,[CUDA memset]\n",
                     {"gemm": (3000.0, 2), "[CUDA memset]": (1000.0, 4)}),
    "cuda_gpu_trace": (TRACE, {"gemm(float *, int)": (80000.0, 2),
                               "[CUDA memcpy Host-to-Device]": (10000.0, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_kernels_of_every_form(tmp_path: Path, form: str) -> None:
    content, expected = FORMS[form]
    found = sums(imported(tmp_path / "k.csv", content)[1]["kernels"])
    assert found == {(None, name): tuple(map(pytest.approx, of)) for name, of in expected.items()}


@pytest.mark.parametrize(
    ("head", "times"),
    [
        (NVTX, DECODE),
        (NVTX.replace("(ns)", "(us)"), "6000.000,2,3000.000,3000,2000,4000,1414.2136,"),
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Range\n",
         "6000000,2,3000000.0,2000000,4000000,"),
    ],
    ids=["nvtx_sum", "--timeunit usec", "nvtxppsum of 2021, no deviation"],
)  # fmt: skip
def test_ranges_of_stages_are_their_times(tmp_path: Path, head: str, times: str) -> None:
    """6 ms of decode in 2 ranges, std 1.414 ms; so of sam. Other ranges are no stages."""
    style = "PushPop," * ("Style" in head)
    text = head + "".join(f"30.0,{times}{style}{name}\n" for name in (":decode", ":sam", "NCCL:allReduce"))
    rows = imported(tmp_path / "n.csv", text)[1]["timings"]
    assert means(rows) == {"decode": (3.0, 2), "sam": (3.0, 2)}
    deviations = [row["milliseconds"] for row in rows if row["aggregate"] == "std"]
    assert deviations == ([] if "Average" in head else [pytest.approx(1.4142136)] * 2)
    assert all(row["inside_prefill"] == (row["stage"] == "sam") for row in rows)


def test_several_reports_of_one_file_are_one_run_and_the_rest_is_named(tmp_path: Path) -> None:
    nvtx = f"{NVTX}100.0,{DECODE}PushPop,:decode\n"
    calls = HEAD.replace("Instances", "Num Calls") + f"{ROW}cuLaunchKernel\n"
    by_shape = HEAD.replace("Name", "GridXYZ,BlockXYZ,Name") + f"{ROW}1 1 1,1 1 1,gemm\n"
    size = "Total (MB),Count,Avg (MB),Med (MB),Operation\n1.0,1,1.0,1.0,[CUDA memset]\n"
    said = SAID.replace("cuda_gpu_kern_sum", "osrt_sum")
    text = f"{said}{calls}\n{SAID}{HEAD}{ROW}gemm\n\n{nvtx}\n{by_shape}\n{size}"
    record, found = imported(tmp_path / "all.csv", text)
    assert (record.source, record.profiled) == ("nsys", True) and means(found["timings"]) == {
        "decode": (3.0, 2)
    }
    assert [list(row.values()) for row in found["kernels"]] == [
        [None, "gemm", 3000.0, 2, 1500.0, 1500.0, 1000.0, 2000.0, 707.1, 75.0]
    ]  # fmt: skip
    note = str(record.notes)
    assert "(cuda_gpu_kern_sum, nvtx_sum)" in note and "Not taken of it: osrt_sum, the one with " in note
    assert note.count("the one with") == 2 and "the one with Total (MB), Count, Avg (MB)." in note
    assert "The kernels' shares add up to 75.0%: the list is not whole." in note


# --- tables of Nsight Compute -----------------------------------------------------------------------

SAMPLES = SHARED / "data" / "llm-perf-opt" / "ncu"
NCU_HEAD = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name",
    "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
)  # fmt: skip
SPEED = "GPU Speed Of Light Throughput"
METRICS = (
    (SPEED, "Elapsed Cycles", "cycle", "46,970"),
    (SPEED, "Duration", "us", "23.42"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Occupancy", "Achieved Occupancy", "%", "n/a"),
)
RULE = ("Occupancy", "", "", "", "TheoreticalOccupancy", "OPT", "Use fewer registers.", "global", "38.17")


def written(*rows: tuple[str, ...], head: tuple[str, ...] = NCU_HEAD) -> str:
    """As ncu writes: all cells quoted, lines of metrics shorter than those of rules."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def launch(number: int, kernel: str = "gemm", *rows: tuple[str, ...]) -> list[tuple[str, ...]]:
    place = ("1", "7", "(128, 1, 1)", "(2, 1, 1)", "0", "9.0")
    start = (str(number), "7", "python", "127.0.0.1", kernel, *place)
    return [(*start, *row, "") if len(row) == 4 else (*start, *row) for row in (rows or (*METRICS, RULE))]


def figures(rows: Rows, number: int = 0) -> list[tuple[str, float | None, str | None]]:
    return [(row["metric"], row["value"], row["unit"]) for row in rows if row["number"] == number]


TABLE = written(*launch(0), *launch(1, "softmax"))
TWICE = written(*launch(0), *launch(0))
FIRST = [
    ("Elapsed Cycles", 46970.0, "cycle"), ("Duration", 23.42, "us"),
    ("Function Cache Configuration", None, None), ("Achieved Occupancy", None, "%"),
]  # fmt: skip


def test_a_table_has_its_launches_with_figures_and_units(tmp_path: Path) -> None:
    _, found = imported(tmp_path / "t.csv", TABLE)
    launches = [[row[name] for name in ("launch", "kernel", "grid")] for row in found["kernel_launches"]]
    assert launches == [[0, "gemm", "(2, 1, 1)"], [1, "softmax", "(2, 1, 1)"]]
    assert figures(found["kernel_metrics"]) == FIRST
    assert [row["text"] for row in found["kernel_metrics"][:4]] == [text for *_, text in METRICS]
    _, again = imported(tmp_path / "t.csv", TWICE)  # the same again changes nothing
    assert figures(again["kernel_metrics"]) == FIRST


def test_a_raw_page_has_a_row_a_launch_its_units_first_and_its_innermost_range_of_a_stage(
    tmp_path: Path,
) -> None:
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    ranges = (
        '647  "<default domain>:prefill:none:none:RGB:0xff:REGISTERED:prefill" '
        '"<default domain>:sam:none:none:RGB:0xff:REGISTERED:sam" '
    )
    raw = written(
        ("", "", "", "us", "", "%"), ("0", "gemm", ranges, "23.42", "CachePreferNone", "41.49"),
        ("1", "softmax", "", "1,002.50", "", "0"),
        head=("ID", "Kernel Name", column, "time.sum", "cache", "sm.pct"),
    )  # fmt: skip
    _, found = imported(tmp_path / "t.csv", raw)
    rows = found["kernel_metrics"]
    assert figures(rows) == [("time.sum", 23.42, "us"), ("cache", None, None), ("sm.pct", 41.49, "%")]
    assert figures(rows, 1) == [("time.sum", 1002.5, "us"), ("sm.pct", 0.0, "%")]
    details = written(
        *((*row[:4], ranges, *row[4:]) for row in launch(0)), head=(*NCU_HEAD[:4], column, *NCU_HEAD[4:])
    )
    _, other = imported(tmp_path / "t.csv", details)
    both = found["kernel_launches"] + other["kernel_launches"]
    assert [row["stage"] for row in both] == ["sam", None, "sam"]
    assert figures(other["kernel_metrics"]) == FIRST


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ({"a": "1.234,5", "us": "23,42", "b": "46.970", "c": "12"}, [1234.5, 23.42, 46970.0, 12.0]),
        ({"us": "1,235", "%": "45.678", "cycle": "24,450"}, [1235.0, 45.678, 24450.0]),
        ({"us": "1,235", "%": "45,678", "cycle": "24.450"}, [1.235, 45.678, 24450.0]),
        ({"us": "1,235", "%": "0,678", "cycle": "24.450"}, [1.235, 0.678, 24450.0]),
        ({"us": "1,235", "cycle": "24.450"}, r"row 3: '24.450' is no count.*LC_ALL=C"),
        ({"a": "1.234,5", "b": "23,42", "%": "41.49"}, r"row 4: '41.49' is a figure of another locale"),
    ],
)  # fmt: skip
def test_a_figure_of_any_locale_is_never_a_thousandfold(
    tmp_path: Path, cells: dict[str, str], values: list[float] | str
) -> None:
    """Nothing is of 45,678 %, no thousands begin with 0, a count has no decimals."""
    text = written(*launch(0, "k", *((SPEED, f"of {unit}", unit, cell) for unit, cell in cells.items())))
    if isinstance(values, list):
        rows = imported(tmp_path / "t.csv", text)[1]["kernel_metrics"]
        assert [row["value"] for row in rows] == values
    else:
        with pytest.raises(InvalidFile, match=values):
            imported(tmp_path / "t.csv", text)


def test_averages_by_kernel_are_a_launch_a_kernel_and_shape(tmp_path: Path) -> None:
    head = "Process ID,Process Name,Kernel Name,Block Size,Grid Size,Invocations,Section Name,Metric Name"
    begin = ("1", "python", "gemm", "(1, 1, 1)")
    rows = [
        (*begin, "(64, 1, 1)", "14", "Occupancy", "Achieved Occupancy", "%", "73.56", "79.38", "74.92"),
        (*begin, "(64, 1, 1)", "14", "Speed", "Duration", "us", "1,000.00", "3,000.00", "2,000.00"),
        (*begin, "(8, 1, 1)", "2", "Speed", "Duration", "us", "1.00", "3.00", "2.00"),
    ]
    columns = (*head.split(","), "Metric Unit", "Minimum", "Maximum", "Average")
    _, found = imported(tmp_path / "t.csv", "==PROF== Connected\n" + written(*rows, head=columns))
    values = {row["metric"]: row["value"] for row in found["kernel_metrics"] if row["number"] == 0}
    assert values == {"Achieved Occupancy": 74.92, "Duration": 2000.0, "Invocations": 14}
    assert [row["grid"] for row in found["kernel_launches"]] == ["(64, 1, 1)", "(8, 1, 1)"]


def test_tables_of_both_tools_and_lines_of_the_program_in_a_file_are_a_run_each(
    history: History, tmp_path: Path
) -> None:
    nsight = "Time (%),Total Time (ns),Instances,Name\n100.0,3000,2,gemm\n"
    head, *rows = TABLE.splitlines()
    lines = ["step 1", "==PROF== Connected", head, *rows[:2], 'he said "stop', "", *rows[2:], "done"]
    (tmp_path / "all.txt").write_text("\n".join([nsight, *lines]) + "\n")
    report = import_paths(history, [tmp_path])
    ids = {run.source: run.run_id for run in report.imported}
    assert ids.keys() == {"ncu", "nsys"} and not report.skipped
    record = history.record(ids["ncu"])
    assert record.profiled and "2 launches of 2 kernels in all.txt" in str(record.notes)
    metrics, _ = history.query("launch_metrics", run_ids=[ids["ncu"]])
    found = metrics.loc[metrics["metric"] == "Duration", ["kernel", "launch", "value", "unit"]]
    assert found.to_numpy().tolist() == [["gemm", 0, 23.42, "us"], ["softmax", 1, 23.42, "us"]]


def test_a_folder_of_kernels_is_one_run_and_what_is_broken_in_it_is_named(
    history: History, tmp_path: Path
) -> None:
    folder = tmp_path / "20251107-142857"
    section = written(*launch(0, "gemm", ("Command line profiler metrics", "x.sum", "", "5")))
    other = written(*launch(0, "gemm", (SPEED, "Duration", "us", "1")))
    for number, name, text in (
        (2, "details", written(*launch(0, "softmax"))),
        (1, "details", written(*launch(0))), (1, "metrics", section),
        (3, "details", written(*launch(0, "cut"))[:-200]), (4, "details", ""),
        (5, "section_Occupancy", written(*launch(0, "sections", RULE))),
        (6, "details", TABLE), (6, "section_SpeedOfLight", other),
    ):  # fmt: skip
        place = folder / f"kernel_{number:04}_{number:032x}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"ncu.{name}.csv").write_text(text, encoding="utf-8")
    (folder / "command.yaml").write_text(
        "timestamp: '2025-11-07T14:28:57+08:00'\nsections: [Occupancy]\nlaunch_command: [python, -m, tool]\n"
    )
    (folder / "kernel.ncu-rep").write_bytes(b"x")
    report = import_paths(history, [folder])
    (run,) = report.imported
    record = history.record(run.run_id)
    assert record.created.startswith("2025-11-07T06:28:57") and record.command == "python -m tool"
    launches, _ = history.query("launches", run_ids=[run.run_id])
    assert launches["kernel"].tolist() == ["gemm", "softmax", "sections"]
    metrics, _ = history.query("launch_metrics", run_ids=[run.run_id])
    gemm = metrics[metrics["kernel"] == "gemm"].set_index("metric")["value"]
    assert gemm["x.sum"] == 5 and gemm["Duration"] == 23.42
    assert sorted(item.reason[:28] for item in report.skipped) == [
        "empty", "not a file that is taken fro", "not whole: row 5: unexpected",
        "row 2: Duration of launch 0 ",
    ]  # fmt: skip


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
def test_every_figure_of_the_samples_is_in_the_history_as_the_table_has_it(
    history: History, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLES, tmp_path / "ncu", copy_function=shutil.copyfile)
    (run,) = import_paths(history, [tmp_path / "ncu"]).imported
    metrics, _ = history.query("launch_metrics", run_ids=[run.run_id])
    keys = ["number", "section", "metric", "unit"]
    had = metrics.fillna({"unit": ""}).set_index(keys)[["text", "value"]].to_dict("index")
    counted = 0
    for number, kernel in enumerate(sorted(SAMPLES.glob("kernel_*"))):
        for file in kernel.glob("*.csv"):
            with file.open(encoding="utf-8", newline="") as handle:
                for row in csv.DictReader(handle):
                    if text := row["Metric Name"] and row["Metric Value"]:
                        found = had[number, row["Section Name"], row["Metric Name"], row["Metric Unit"]]
                        value = found["value"]
                        assert found["text"] == text
                        assert text == "n/a" if value != value else value == float(text.replace(",", ""))
                        counted += 1
    assert counted > 8 * 60


# --- databases of Nsight Systems --------------------------------------------------------------------

SCHEMA = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
        start INT, end INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, correlationId INT, globalPid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, correlationId INT, globalPid INT);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100');
    INSERT INTO StringIds VALUES (1, 'gemm(float *)'), (2, 'copy'), (3, 'prefill'), (4, 'sam');
"""


def database(script: str, rows: Iterable[tuple[str, tuple[object, ...]]] = ()) -> bytes:
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(script)
        for table, values in rows:
            made.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        made.commit()
        return made.serialize()


def export() -> bytes:
    """Two pages: prefill with sam inside, decode. Another process has the same numbers of launches."""
    # A thread's number as nsys writes it: its last 24 bits are the thread's own.
    process, thread, other = (1 << 48 | of << 24 | own for of, own in ((7, 0), (7, 7), (8, 8)))
    ranges = [(0, 1000, 3, None), (100, 400, 4, None), (2000, 5000, None, "decode"),
              (10_000, 13_000, 3, None), (14_000, 15_000, None, "decode")]  # fmt: skip
    # A kernel runs long after its launch, and belongs to where it was launched.
    launches = [(200, 50, 1), (500, 70, 1), (2500, 20, 2), (2600, 30, 2), (9000, 5, 2)]
    # The second decode replays a graph, and copies what it made.
    replays = [(14_200, 20_000, "GRAPH_TRACE"), (14_500, 20_450, "MEMCPY")]
    calls = [(start, start + 1, thread, start) for start, *_ in (*launches, *replays)]
    # The driver's call within the runtime's is the same launch.
    calls += [(2500, 2501, other, 200), (201, 202, thread, 200)]
    rows: list[tuple[str, tuple[object, ...]]] = [
        ("NVTX_EVENTS", (0, 99, 34, "a mark", thread, None)),
        *(("NVTX_EVENTS", (start, end, 59, text, thread, of)) for start, end, of, text in ranges),
        *(("CUPTI_ACTIVITY_KIND_RUNTIME", call) for call in calls),
        *(("CUPTI_ACTIVITY_KIND_KERNEL", (at + 4000, at + 4000 + took, at, process, name, name))
          for at, took, name in launches),
        *((f"CUPTI_ACTIVITY_KIND_{of}", (start, start + 400, at, process)) for at, start, of in replays),
    ]  # fmt: skip
    return database(SCHEMA, rows)


def test_stages_of_a_real_export_are_those_of_the_stage_timer(tmp_path: Path) -> None:
    """Three pages on a CPU under `nsys profile -t nvtx` 2023.4.4, without the tables that name the machine.

    The timer's are what `run` recorded of the same pages: 5 microseconds more, as it ends after the range.
    """
    timer = {
        "preprocess": 337.3884, "tokenizer": 1.0906, "sam": 682.9001, "clip": 33.1671, "projector": 1.5666,
        "vision_fusion": 2.3655, "prefill": 893.8112, "decode": 1434.019, "postprocess": 0.943,
    }  # fmt: skip
    content = gzip.decompress((DATA / "nsys-three-pages.sqlite.gz").read_bytes())
    rows = imported(tmp_path / "pages.sqlite", content)[1]["timings"]
    found = {stage: milliseconds * calls for stage, (milliseconds, calls) in means(rows).items()}
    assert found == pytest.approx(timer, rel=0.02)


def test_a_database_has_kernels_by_stage_and_the_stages(tmp_path: Path) -> None:
    record, found = imported(tmp_path / "r.sqlite", export())
    assert record.gpu == "NVIDIA H100"
    assert sums(found["kernels"]) == {
        ("sam", "gemm(float *)"): (50.0, 1), ("prefill", "gemm(float *)"): (70.0, 1),
        ("decode", "copy"): (50.0, 2), (None, "copy"): (5.0, 1),
    }  # fmt: skip
    # The device's: sam's kernel 50 ns; decode from 6,500 to 6,630 and from 20,000 to 20,850. The second
    # prefill launched nothing that is known, so the host's are taken: 1,000 and 3,000 ns.
    assert means(found["timings"]) == {
        "prefill": (0.002, 2), "sam": (0.00005, 1), "decode": (pytest.approx(0.00049), 2)
    }  # fmt: skip


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
KERNEL = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end); INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"


# --- traces of torch.profiler -----------------------------------------------------------------------


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
EXPECTED: Kernels = {
    ("sam", "void gemm<float>(float*)"): (60_500.0, 1),
    ("prefill", "void gemm<float>(float*)"): (20_000.0, 1),
    ("decode", "copy"): (40_000.0, 2),
    (None, "Memcpy HtoD (Pageable -> Device)"): (8_000.0, 1),
}


def trace(events: list[dict[str, Any]] = EVENTS, **more: Any) -> str:
    devices = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events, **more})


@pytest.mark.parametrize(
    "content",
    [
        trace(),
        gzip.compress(trace(distributedInfo={"rank": 0}).encode()),
        json.dumps(json.loads(trace()), indent=2),
        json.dumps(EVENTS),
        b"\xef\xbb\xbf" + trace().encode(),
        trace().replace('"kernel"', '"Kernel"').replace('"cuda_runtime"', '"Runtime"'),
    ],
    ids=["", "packed", "indented", "events alone", "byte order mark", "2021"],
)
def test_a_trace_has_kernels_by_stage_and_the_stages(tmp_path: Path, content: str | bytes) -> None:
    record, tables = imported(tmp_path / "t.json", content)
    assert (record.source, record.profiled) == ("torch", True)
    assert record.gpu == (None if content == json.dumps(EVENTS) else "NVIDIA H200")
    assert sums(tables["kernels"]) == EXPECTED
    assert means(tables["timings"]) == {"prefill": (1.0, 1), "sam": (0.3, 1), "decode": (3.0, 2)}


def test_stages_of_a_page_are_those_of_its_stage_timer(tmp_path: Path) -> None:
    """A page of 12 tokens on an H200: what our NVTX stages mark, and the stage timer of the same page."""
    content = (DATA / "torch-fast-page.json.gz").read_bytes()
    timer = json.loads(gzip.decompress(content))["stageTimer"]
    found = means(imported(tmp_path / "t.json.gz", content)[1]["timings"])
    assert found.keys() == timer.keys()
    for stage, within in {"sam": 2, "clip": 2, "prefill": 2, "decode": 3, "preprocess": 3}.items():
        assert found[stage][0] == pytest.approx(timer[stage], rel=within / 100), stage


def test_without_launches_a_kernel_is_of_the_stage_that_was_open_when_it_began(tmp_path: Path) -> None:
    for kind, stage in (("user_annotation", "decode"), ("gpu_user_annotation", "sam")):
        events = [event(kind, stage, 990, 100), event("kernel", "gemm", 1000, 60, tid=7)]
        _, found = imported(tmp_path / "t.json", trace(events))
        assert [row["stage"] for row in found["kernels"]] == [stage]


EVENT_LIST = '"traceEvents": ['


@pytest.mark.parametrize(
    "name",
    [r"torch\cuda\__init__.py(2): f", "C:\\dir\\", '{"a": "b", "c"}(1): g', 'f("x", "y")', "a\x01\x02\n"],
)
def test_an_event_that_is_no_json_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    """Names of stacks by Windows, and of compiled code; control characters alone are read."""
    broken = '{"ph": "X", "cat": "python_function", "name": "NAME", "pid": 1, "ts": 1, "dur": 1},'
    broken = broken.replace("NAME", name)
    text = trace().replace(EVENT_LIST, EVENT_LIST + broken + broken)
    record, found = imported(tmp_path / "t.json", text)
    assert sums(found["kernels"]) == EXPECTED
    said = f"left out, the first at character {text.index(broken)}"
    assert (said in (record.notes or "")) == ("\x01" not in name)


@pytest.mark.parametrize(
    ("module", "limits", "content", "reason"),
    [
        (nsys, {"SECONDS": -1.0, "_STEPS": 10}, export(), "takes more than -1 s"),
        (nsys, {"ROW_LIMIT": 5}, export(), "more than 5 ranges"),
        (torch_trace, {"TRACE_LIMIT": 12 * 1024 * 1024},
         gzip.compress(b'{"traceEvents": [' + b'{"ph": "M", "name": "x"},\n' * 800_000, 1),
         "more than 12 MiB unpacked: profile fewer steps"),
        (torch_trace, {"EVENT_LIMIT": 5}, trace(), "more than 5 events"),
    ],
    ids=["seconds", "ranges", "bytes", "events"],
)  # fmt: skip
def test_what_takes_too_long_or_is_too_large_is_ended_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limits: dict[str, Any],
    content: str | bytes, reason: str,
) -> None:  # fmt: skip
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    with pytest.raises(InvalidFile, match=reason):
        imported(tmp_path / "t.json.gz", content)


# --- what is not whole ------------------------------------------------------------------------------


def of_one(**other: Any) -> str:
    return trace([event("kernel", "k", 1, 1) | other])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        # Nsight Systems
        (GERMAN.replace("1.500,0", "1500.0", 1), "a figure of another locale than others"),
        (CSV[:-3].rstrip("copy"), "row 3 has no name"),
        (CSV[: CSV.index("copy") - 8], "not whole: row 3|row 3"),
        (CSV.replace("1500.0", "1600.0", 1), "row 2: the average 1600.0 is not 3000 over 2"),
        (CSV.replace("(ns)", "(us)").replace("1500.0", "1510.0"), "row 2: the average 1510.0 is not"),
        *((CSV.replace("1000,4", wrong), "row 3") for wrong in
          ("-1000,4", "1_000,4", "nan,4", ",4", "1000,0")),
        *((CSV.replace("25.0,", wrong), "row 3") for wrong in ("²5.0,", "125.0,")),
        (CSV.replace('"void', "void"), "not whole: row 2"),
        (CSV[: CSV.index('<(int)4, (bool)0>(T1)"')], "not whole: row 2"),
        (HEAD, "a head and no rows"), ("", "empty"),
        (CSV.replace("Instances", "Calls"), "looks like a report of Nsight Systems"),
        *((f"{CSV}\n{CSV.replace(*other)}", "two tables of cuda_gpu_kern_sum, of two profiles")
          for other in (("707.1", "707.2"), ("(ns)", "(us)"))),
        # Nsight Compute
        ("ID,Kernel Name\n", "a head and no rows"),
        ("name,value\n1,2\n", "looks like nothing that the history knows"),
        (TABLE + written(*launch(0, "other")), "two tables of ncu details, of two profiles"),
        (TABLE.replace('"0","7"', '"zero","7"', 1), "'zero' is no launch's ID"),
        (TABLE.replace('"gemm"', '""', 1), "row 2 names no kernel"),
        (TABLE.replace('"Stream"', '"context"', 1), "a column appears twice"),
        (TABLE.replace('"Metric Value"', '"Metric Value (us)"', 1), "not whole"),
        (TABLE[:-30], "not whole: row 11"),
        (TWICE.replace("23.42", "9.9", 1), "row 8: Duration of launch 0 is 23.42, above 9.9"),
        (TWICE.replace("gemm", "copy", 1), "row 3: launch 0 is another kernel above"),
        (written(("0", "k", "1"), head=("ID", "Kernel Name", "sm__x")), "row 2 has no units, or"),
        (written(("", "", "%"), head=("ID", "Kernel Name", "sm__x")), "or no kernel follows it"),
        # databases of Nsight Systems
        (database("CREATE TABLE pages (a)"), "no export of Nsight Systems"),
        (database(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS}"), "no export of Nsight Systems"),
        (database(f"{KERNEL} (9, 1)"), "ended before it began"),
        (database(f"{KERNEL} ('a', x'00')"), "a damaged database"),
        (database("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text)"), "no kernels and no range of a"),
        (export()[:9000], "."),
        # torch.profiler
        (trace()[:-200], "not whole"),
        (trace().replace(EVENT_LIST, EVENT_LIST + "[" * 100_000), "nested too deeply|not JSON"),
        (trace([]), "without kernels and without ranges"),
        *((of_one(**wrong), "without a time") for wrong in
          ({"dur": -2}, {"dur": float("inf")}, {"dur": "x"}, {"ts": 10**400})),
        ('{"traceEvents" : 1}', "no list traceEvents"),
        ('{"traceEvents": [1 2', "not whole"),
        ('{"traceEvents": [{"ph": "X", "name": "' + "x" * 30_000_000, "an event of more than 16 MiB"),
        (gzip.compress(trace().encode())[:-4], "not a whole gzip file"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused_with_its_place(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    with pytest.raises(InvalidFile, match=reason):
        imported(tmp_path / "file", content)
