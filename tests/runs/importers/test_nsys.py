"""Tables and databases of Nsight Systems: figures worked out by hand, whatever version and unit."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import nsys_sqlite
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.llm_perf_opt import _captured
from dsocr_core.runs.importers.nsys import kernels_of
from tests.support.flat_tables import flat_tables

HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
CSV = (
    f'{HEAD}75.0,3000,2,1500.0,1500.0,1000,2000,707.1,"void gemm<(int)4, (bool)0>(T1)"\n'
    "25.0,1000,4,250.0,250.0,250,250,0.0,copy\n"
)
GERMAN = HEAD.replace(",", ";") + "75,0;3.000;2;1.500,0;1.500,0;1.000;2.000;707,1;gemm, f\n"
NVTX = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n"
Rows = list[dict[str, Any]]
Taken = Callable[[str, str | bytes], dict[str, Rows]]


@pytest.fixture
def taken(tmp_path: Path, imported: Callable[[Path], Any]) -> Taken:
    """The tables of the one run in a file of that name and content."""

    def take(name: str, content: str | bytes) -> dict[str, Rows]:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        ((record, tables),) = imported(file)
        assert record.source == "nsys" and record.profiled
        return {name: table.to_pylist() for name, table in tables.items()}

    return take


def figures(rows: Rows) -> dict[str, tuple[float, int, float | None, float | None]]:
    """Total, instances, least and most of each kernel."""
    return {row["name"]: (row["total_ns"], row["instances"], row["min_ns"], row["max_ns"]) for row in rows}


def test_a_kernel_summary_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "my kernels.csv"
    file.write_text(CSV)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    with History(tmp_path / "history") as history:
        (found,) = import_paths(history, [file]).imported
        record = history.record(found.run_id)
        first, second = flat_tables(history, found.run_id)["kernels"].to_pylist()
    assert (record.profiled, record.gpu, record.backends) == (True, None, ())
    assert record.created == "2023-11-14T22:13:20+00:00"
    assert record.notes == (
        "Nsight Systems (cuda_gpu_kern_sum) in my kernels.csv. The time is the file's: the run's own is not"
        " known."
    )
    assert first | {"run_id": ""} == {
        "run_id": "", "stage": None, "name": "void gemm<(int)4, (bool)0>(T1)", "total_ns": 3000.0,
        "instances": 2, "avg_ns": 1500.0, "med_ns": 1500.0, "min_ns": 1000.0, "max_ns": 2000.0,
        "stddev_ns": 707.1, "time_percent": 75.0,
    }  # fmt: skip
    assert (second["name"], second["stddev_ns"]) == ("copy", 0.0)


GEMM, COPY = (3000.0, 2, 1000.0, 2000.0), (1000.0, 4, 250.0, 250.0)
BOTH = {"void gemm<(int)4, (bool)0>(T1)": GEMM, "copy": COPY}
SAID = (
    "Generating SQLite file r.sqlite from r.nsys-rep\n"
    "Processing [r.sqlite] with [/opt/nvidia/nsight-systems/2024.6.2/host-linux-x64/reports/cuda_gpu_kern_s"
    "um.py]... \n"
)
OLD = 'Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n75.0,3000,2,1500.0,1000,2000,"gemm"\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(SAID + CSV, BOTH, id="as the terminal shows it"),
        pytest.param(f"step 1: done, 4 pages\nloss (ms) 3\n\n{SAID}{CSV}\n", BOTH,
        id="after the program's lines"),
        pytest.param(CSV.replace("\n", "\r\n"), BOTH, id="lines of Windows"),
        pytest.param("\ufeff" + CSV, BOTH, id="byte order mark"),
        pytest.param(CSV.encode("utf-16"), BOTH, id="PowerShell"),
        pytest.param(CSV.encode("utf-16-be").join([b"\xfe\xff", b""]), BOTH, id="the other UTF-16"),
        pytest.param(
            HEAD + '75.0,"5,000,000",2,"2,500,000.0",2500000.0,"1,000,000","4,000,000",0,gemm\n',
            {"gemm": (5e6, 2, 1e6, 4e6)}, id="thousands",
        ),
        # gpukernsum of 2020 and 2021, with and without deviations.
        pytest.param(OLD, {"gemm": GEMM}, id="2020"),
        pytest.param(
            'Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,StdDev,Name\n75.0,3000,2,1500.0,1000'
            ',2000,707.1,"gemm"\n',
            {"gemm": GEMM}, id="2021",
        ),
        pytest.param(
            '"Time (%)","Total Time (ns)","Instances","Avg (ns)","Med (ns)","Min (ns)","Max (ns)","StdDev ('
            'ns)","Name"\n'
            '"75.0","3000","2","1500.0","1500.0","1000","2000","707.1","gemm"\n', {"gemm": GEMM}, id="quoted",
        ),
        pytest.param(
            HEAD.replace(",", "\t") + "75.0\t3000\t2\t1500.0\t1500.0\t1000\t2000\t707.1\tgemm, f\n",
            {"gemm, f": GEMM}, id="--format tsv",
        ),
        pytest.param(GERMAN, {"gemm, f": GEMM}, id="a German spreadsheet"),
        pytest.param(
            HEAD + '"75,0",3.000,2,"1.500,0","1.500,0",1.000,2.000,"707,1",gemm\n', {"gemm": GEMM},
            id="decimal commas in quotes",
        ),
        # By grid and block: 2 x 1,000 and 1 x 400 ns of one kernel are 2,400 ns in 3.
        pytest.param(
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,Blo"
            "ckXYZ,Name\n"
            '80.0,2000,2,1000.0,1000.0,900,1100,141.4," 896    1    1"," 256    1    1","gemm(int, int)"\n'
            '16.0,400,1,400.0,400.0,400,400,0.0," 1    1    1"," 256    1    1","gemm(int, int)"\n'
            '4.0,100,1,100.0,100.0,100,100,0.0," 1    1    1"," 32    1    1",copy\n',
            {"gemm(int, int)": (2400.0, 3, 400.0, 1100.0), "copy": (100.0, 1, 100.0, 100.0)},
            id="kern_gb_sum",
        ),
        pytest.param(
            HEAD.replace("(ns)", "(us)") + "75.0,3.000,2,1.500,1.500,1.000,2.000,0.707,gemm\n",
            {"gemm": GEMM}, id="--timeunit usec",
        ),
        pytest.param(
            HEAD.replace("(ns)", "(ms)") + "75.0,0.003,2,0.002,0.002,0.001,0.002,0.001,gemm\n",
            {"gemm": GEMM}, id="--timeunit msec",
        ),
        pytest.param(
            HEAD.replace("(ns)", "(s)") + "75.0,3.000000,2,1.500000,1.500000,1.0,2.0,0.7,gemm\n",
            {"gemm": (3e9, 2, 1e9, 2e9)}, id="--timeunit sec",
        ),
        # cuda_gpu_sum has copies beside kernels, cuda_gpu_trace every launch: 60 + 20 and 10 us.
        pytest.param(
            HEAD.replace("Name", "Category,Operation")
            + "75.0,3000,2,1500.0,1500.0,1000,2000,707.1,CUDA_KERNEL,gemm\n"
            + "25.0,1000,4,250.0,250.0,250,250,0.0,MEMORY_OPER,[CUDA memcpy Host-to-Device]\n",
            {"gemm": GEMM, "[CUDA memcpy Host-to-Device]": COPY}, id="cuda_gpu_sum",
        ),
        pytest.param(
            "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),"
            "Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
            '100,60000,1,64,1,1,256,1,1,32,0.0,0.0,,,,,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n'
            "200,10000,2,,,,,,,,,,8.389,167.0,Pageable,Device,NVIDIA A100 (0),1,7,[CUDA memcpy Host-to-Devi"
            "ce]\n"
            '300,20000,3,64,1,1,256,1,1,32,0.0,0.0,,,,,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n',
            {"gemm(float *, int)": (80000.0, 2, 20000.0, 60000.0),
             "[CUDA memcpy Host-to-Device]": (10000.0, 1, 10000.0, 10000.0)}, id="cuda_gpu_trace",
        ),
    ],
)  # fmt: skip
def test_kernels_of_every_form(
    taken: Taken, content: str | bytes, expected: dict[str, tuple[float, ...]]
) -> None:
    assert figures(taken("k.csv", content)["kernels"]) == {
        name: tuple(map(pytest.approx, values)) for name, values in expected.items()
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # 6 ms of decode in 2 ranges and 0.5 ms of sam; std 1.414 ms. Other ranges are no stages.
        pytest.param(
            f"{NVTX}90.0,6000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,PushPop,:decode\n"
            "8.0,500000,1,500000.0,500000.0,500000,500000,0.0,PushPop,:sam\n"
            "2.0,100000,1,100000.0,100000.0,100000,100000,0.0,PushPop,NCCL:ncclAllReduce\n",
            {"decode": (3.0, 1.4142136, 2), "sam": (0.5, None, 1)}, id="nvtx_sum",
        ),
        pytest.param(
            NVTX.replace("Style,", "") + "100.0,6000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,pre"
            "fill\n",
            {"prefill": (3.0, 1.4142136, 2)}, id="nvtx_pushpop_sum",
        ),
        pytest.param(
            "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Range\n"
            "100.0,6000000,2,3000000.0,2000000,4000000,prefill\n", {"prefill": (3.0, None, 2)},
            id="nvtxppsum of 2021",
        ),
        pytest.param(
            NVTX.replace("(ns)", "(us)") + "100.0,6000.000,2,3000.000,3000.000,2000.0,4000.0,1414.2136,Push"
            "Pop,:clip\n",
            {"clip": (3.0, 1.4142136, 2)}, id="--timeunit usec",
        ),
        pytest.param(
            "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),Proj Med "
            "(ns),"
            "Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num C"
            "hild\n"
            ":decode,PushPop,6000000,9000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,42,21.0,0.0,0.0\n",
            {"decode": (3.0, 1.4142136, 2)}, id="nvtx_gpu_proj_sum",
        ),
    ],
)  # fmt: skip
def test_ranges_of_stages_are_their_times(
    taken: Taken, content: str, expected: dict[str, tuple[float, float | None, int]]
) -> None:
    rows = taken("n.csv", content)["stage_timings"]
    assert {row["page"] for row in rows} == {None}
    for stage, (mean, deviation, calls) in expected.items():
        of = {row["aggregate"]: row for row in rows if row["stage"] == stage}
        assert (of["mean"]["milliseconds"], of["mean"]["calls"]) == (pytest.approx(mean), calls)
        assert of["mean"]["inside_prefill"] == (stage in ("sam", "clip"))
        assert ("std" in of) == (deviation is not None)
        assert deviation is None or of["std"]["milliseconds"] == pytest.approx(deviation)
    assert {row["stage"] for row in rows} == set(expected)


def test_several_reports_of_one_file_are_one_run(taken: Taken) -> None:
    nvtx = f"{NVTX}100.0,6000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,PushPop,:decode\n"
    calls = HEAD.replace("Instances", "Num Calls")
    calls += "100.0,760000,4,190000.0,190000.0,1,300000,10.0,cuLaunchKernel\n"
    size = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    size += "1.0,1,1.0,1.0,1.0,1.0,0.0,[CUDA memset]\n"
    system = calls.replace("cuLaunchKernel", "sem_wait")  # osrt_sum has the same columns
    said = "NOTICE: existing SQLite export found: r.sqlite\n"
    text = f"{SAID}{system}\n{SAID}{CSV}\n{SAID}{nvtx}\n{said}{calls}\n{SAID}{size}\n{SAID}{system}"
    found = taken("all.csv", text)
    assert figures(found["kernels"]) == BOTH
    assert [row["milliseconds"] for row in found["stage_timings"] if row["aggregate"] == "mean"] == [3.0]
    assert {(row["subject"], row["figure"], row["value"], row["unit"]) for row in found["reported"]} == {
        ("cuLaunchKernel", "calls", 4.0, None), ("cuLaunchKernel", "time", 0.76, "ms"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        GERMAN.replace("1.500,0", "1500.0", 1),  # both forms of figures
        CSV[:-3].rstrip("copy"),
        CSV[: CSV.index("copy") - 8],
        CSV.replace("3000", "3001", 1).replace("1500.0", "1600.0", 1),
        CSV.replace("1000,4", "-1000,4"),
        CSV.replace("1000,4", "1_000,4"),
        CSV.replace("1000,4", "nan,4"),
        CSV.replace("1000,4", ",4"),
        CSV.replace("1000,4", "1000,0"),
        CSV.replace("25.0,", "²5.0,"),
        CSV.replace("25.0,", "125.0,"),
        CSV.replace('"void', "void"),
        CSV[: CSV.index('<(int)4, (bool)0>(T1)"')],
        CSV.replace("copy", " "),
        CSV.splitlines()[0] + "\n",
        CSV.replace("Instances", "Calls"),
        CSV.replace("(ns)", "(us)").replace("1500.0", "1510.0"),
        "",
    ],
)
def test_a_kernel_summary_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(InvalidFile):
        kernels_of(text)


def test_two_profiles_in_a_file_are_refused_and_one_told_twice_is_one(taken: Taken, tmp_path: Path) -> None:
    again = CSV.replace("75.0,3000,2,1500.0,1500.0", "75.0,3000,2,1500.0,1400.0")
    file = tmp_path / "two.csv"
    file.write_text(f"{CSV}\n{again}")
    with History(tmp_path / "other") as history:
        report = import_paths(history, [file])
    assert not report.imported
    assert "cuda_gpu_kern_sum stands in it twice" in report.skipped[0].reason
    with pytest.raises(InvalidFile, match="stands in it twice"):  # the same numbers, of another unit
        kernels_of(f"{CSV}\n{CSV.replace('(ns)', '(us)')}")
    assert figures(taken("twice.csv", f"{CSV}\n{CSV}")["kernels"]) == BOTH


def test_a_shortened_kernel_summary_says_so(tmp_path: Path) -> None:
    (tmp_path / "top.csv").write_text("\n".join(CSV.splitlines()[:2]) + "\n")
    with History(tmp_path / "history") as history:
        (found,) = import_paths(history, [tmp_path / "top.csv"]).imported
        notes = history.record(found.run_id).notes
    assert notes and "The kernels' shares add up to 75.0%: the list is not whole." in notes


def test_which_stage_was_captured() -> None:
    assert _captured("nsys profile --capture-range=nvtx --nvtx-capture=prefill -o x", {}) == "prefill"
    assert _captured("nsys profile -c nvtx -p sam -o x", {}) == "sam"
    assert _captured("nsys profile --trace=cuda --nvtx-capture=prefill -o x", {}) is None
    assert _captured("nsys profile --capture-range=nvtx --nvtx-capture=warmup -o x", {}) is None


# --- databases --------------------------------------------------------------------------------------


def gid(process: int, thread: int = 0) -> int:
    """A number of a thread as nsys writes it."""
    return 1 << 48 | process << 24 | thread


SCHEMA = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
        start INT, end INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, correlationId INT, globalPid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, correlationId INT, globalPid INT);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
"""


def export(file: Path) -> None:
    """Two pages: prefill with sam inside, decode. Another process has the same numbers of launches."""
    with closing(sqlite3.connect(file)) as database, database:
        database.executescript(SCHEMA)
        names = [(1, "gemm(float *)"), (2, "copy"), (3, "prefill"), (4, "sam")]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100')")
        thread, other = gid(7, 7), gid(8, 8)
        ranges = [(0, 1000, 3, None), (100, 400, 4, None), (2000, 5000, None, "decode"),
                  (10_000, 13_000, 3, None), (14_000, 15_000, None, "decode")]  # fmt: skip
        for start, end, number, text in ranges:
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?)", (start, end, text, thread, number)
            )
        database.execute("INSERT INTO NVTX_EVENTS VALUES (0, 99, 34, 'a mark', ?, NULL)", (thread,))
        # A kernel runs long after its launch, and belongs to where it was launched.
        for launch, took, name in ((200, 50, 1), (500, 70, 1), (2500, 20, 2), (2600, 30, 2), (9000, 5, 2)):
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                (launch, launch + 1, thread, launch),
            )
            row = (launch + 4000, launch + 4000 + took, launch, gid(7), name, name)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", row)
        # The second decode replays a graph, and copies what it made.
        for launch, start, table in ((14_200, 20_000, "GRAPH_TRACE"), (14_500, 20_450, "MEMCPY")):
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                (launch, launch + 1, thread, launch),
            )
            database.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (?, ?, ?, ?)",
                (start, start + 400, launch, gid(7)),
            )
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2500, 2501, ?, 200)", (other,))
        # The driver's call within the runtime's is the same launch.
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (201, 202, ?, 200)", (thread,))


def test_stages_of_a_real_export_are_those_of_the_stage_timer(taken: Taken) -> None:
    """Three pages on a CPU under `nsys profile -t nvtx` 2023.4.4, without the tables that name the machine.

    The timer's are what `run` recorded of the same pages: 5 microseconds more, as it ends after the range.
    """
    timer = {
        "preprocess": 337.3884, "tokenizer": 1.0906, "sam": 682.9001, "clip": 33.1671, "projector": 1.5666,
        "vision_fusion": 2.3655, "prefill": 893.8112, "decode": 1434.019, "postprocess": 0.943,
    }  # fmt: skip
    file = Path(__file__).parent / "data" / "nsys-three-pages.sqlite.gz"
    rows = taken("three-pages.sqlite", gzip.decompress(file.read_bytes()))["stage_timings"]
    found = {row["stage"]: row["milliseconds"] * row["calls"] for row in rows if row["aggregate"] == "mean"}
    assert found == pytest.approx(timer, rel=0.02)


def test_a_database_has_kernels_by_stage_and_the_stages(taken: Taken, tmp_path: Path) -> None:
    export(tmp_path / "made")
    found = taken("r.sqlite", (tmp_path / "made").read_bytes())
    assert {(row["stage"], row["name"]): (row["total_ns"], row["instances"]) for row in found["kernels"]} == {
        ("sam", "gemm(float *)"): (50.0, 1), ("prefill", "gemm(float *)"): (70.0, 1),
        ("decode", "copy"): (50.0, 2), (None, "copy"): (5.0, 1),
    }  # fmt: skip
    means = {
        row["stage"]: (row["milliseconds"], row["calls"])
        for row in found["stage_timings"]
        if row["aggregate"] == "mean"
    }
    # The device's: sam's kernel 50 ns; decode from 6,500 to 6,630 and from 20,000 to 20,850. The second
    # prefill launched nothing that is known, so the host's are taken: 1,000 and 3,000 ns.
    assert means == {"prefill": (0.002, 2), "sam": (0.00005, 1), "decode": (pytest.approx(0.00049), 2)}


def test_an_older_database_without_processes_and_launches_is_read(taken: Taken, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "made")) as database, database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT)")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (5, 'gemm')")
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", [(0, 30, 5), (40, 50, 5), (60, 61, 9)]
        )
    rows = taken("old.sqlite", (tmp_path / "made").read_bytes())["kernels"]
    assert figures(rows) == {"gemm": (40.0, 2, 10.0, 30.0), "not known": (1.0, 1, 1.0, 1.0)}
    assert {row["stage"] for row in rows} == {None}


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("CREATE TABLE pages (a)", "no export of Nsight Systems"),
        (f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS}", "no export of Nsight Systems"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end); "
         "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 1)", "ended before it began"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end); "
         "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', x'00')", "a kernel without times"),
        ("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text)", "no kernels and no range of a stage"),
    ],
)  # fmt: skip
def test_a_database_of_strangers_is_refused(tmp_path: Path, sql: str, reason: str) -> None:
    file = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(sql)
    with pytest.raises(InvalidFile, match=reason):
        nsys_sqlite.read_database(RunFiles(file))


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as database, database:
        row = (
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT k.* FROM CUPTI_ACTIVITY_KIND_KERNEL k, NVTX_EVENTS"
        )
        for _ in range(5):
            database.execute(row)
    monkeypatch.setattr(nsys_sqlite, "SECONDS", -1.0)
    monkeypatch.setattr(nsys_sqlite, "_STEPS", 10)
    with pytest.raises(InvalidFile, match=r"takes more than -1 s"):
        nsys_sqlite.read_database(RunFiles(tmp_path / "x.sqlite"))
    monkeypatch.setattr(nsys_sqlite, "SECONDS", 60.0)
    monkeypatch.setattr(nsys_sqlite, "KERNEL_LIMIT", 100)
    with pytest.raises(InvalidFile, match="more than 100 kernels"):
        nsys_sqlite.read_database(RunFiles(tmp_path / "x.sqlite"))
    (tmp_path / "torn.sqlite").write_bytes((tmp_path / "x.sqlite").read_bytes()[:9000])
    with pytest.raises(InvalidFile):
        nsys_sqlite.read_database(RunFiles(tmp_path / "torn.sqlite"))
