"""Tables and databases of Nsight Systems: figures worked out by hand, whatever version and unit."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers import nsys
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.llm_perf_opt import read_run
from dsocr_core.runs.importers.nsys import kernels_of
from tests.support.imported_files import Rows, imported

HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
ROW = "75.0,3000,2,1500.0,1500.0,1000,2000,707.1,"
CSV = f'{HEAD}{ROW}"void gemm<(int)4, (bool)0>(T1)"\n25.0,1000,4,250.0,250.0,250,250,0.0,copy\n'
GERMAN = HEAD.replace(",", ";") + "75,0;3.000;2;1.500,0;1.500,0;1.000;2.000;707,1;gemm, f\n"
NVTX = HEAD.replace("Name", "Style,Range")


def figures(rows: Rows) -> dict[str, tuple[float, int, float | None, float | None]]:
    """Total, instances, least and most of each kernel."""
    return {row["name"]: (row["total_ns"], row["instances"], row["min_ns"], row["max_ns"]) for row in rows}


def means(rows: Rows) -> dict[str, tuple[float, int]]:
    return {row["stage"]: (row["milliseconds"], row["calls"]) for row in rows if row["aggregate"] == "mean"}


def test_a_kernel_summary_by_itself(tmp_path: Path) -> None:
    record, found = imported(tmp_path / "my kernels.csv", CSV)
    assert (record.source, record.profiled) == ("nsys", True)
    assert record.notes == (
        "Nsight Systems (cuda_gpu_kern_sum) in my kernels.csv. The time is the file's: the run's own is not"
        " known."
    )
    assert list(found["kernels"][0].values()) == [
        None, "void gemm<(int)4, (bool)0>(T1)", 3000.0, 2, 1500.0, 1500.0, 1000.0, 2000.0, 707.1, 75.0
    ]  # fmt: skip
    cut, _ = imported(tmp_path / "top.csv", HEAD + ROW + "gemm\n")
    assert "The kernels' shares add up to 75.0%: the list is not whole." in str(cut.notes)


GEMM, COPY = (3000.0, 2, 1000.0, 2000.0), (1000.0, 4, 250.0, 250.0)
BOTH = {"void gemm<(int)4, (bool)0>(T1)": GEMM, "copy": COPY}
G = {"g": GEMM}
SAID = "Generating SQLite file r.sqlite\nProcessing [r.sqlite] with [/a/reports/cuda_gpu_kern_sum.py]... \n"
US, MS, S = (HEAD.replace("(ns)", f"({unit})") for unit in ("us", "ms", "s"))
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,Device,Ctx,Strm,Name\n"
    '100,60000,1,64,1,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n'
    "200,10000,2,,,NVIDIA A100 (0),1,7,[CUDA memcpy Host-to-Device]\n"
    '300,20000,3,64,1,NVIDIA A100 (0),1,7,"gemm(float *, int)"\n'
)
FORMS: dict[str, tuple[str | bytes, dict[str, tuple[float, int, float, float]]]] = {
    "as the terminal shows it": (SAID + CSV, BOTH),
    "after the program's lines": (f"step 1: done, 4 pages\nloss (ms) 3\n\n{SAID}{CSV}\n", BOTH),
    "told twice": (f"{CSV}\n{CSV}", BOTH),
    "lines of Windows": (CSV.replace("\n", "\r\n"), BOTH),
    "byte order mark": ("\ufeff" + CSV, BOTH),
    "PowerShell": (CSV.encode("utf-16"), BOTH),
    "the other UTF-16": (b"\xfe\xff" + CSV.encode("utf-16-be"), BOTH),
    "thousands": (HEAD + '75.0,"3,000",2,"1,500.0",1500.0,"1,000","2,000",0,gemm\n', {"gemm": GEMM}),
    "2020": ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n75,3000,2,1500,1000,2000,g", G),
    "quoted": ("\n".join('"' + line.replace(",", '","') + '"' for line in (HEAD[:-1], ROW + "gemm")) + "\n",
               {"gemm": GEMM}),
    "--format tsv": ((HEAD + ROW).replace(",", "\t") + "gemm, f\n", {"gemm, f": GEMM}),
    "a German spreadsheet": (GERMAN, {"gemm, f": GEMM}),
    "decimal commas in quotes": (HEAD + '"75,0",3.000,2,"1.500,0","1.500,0",1.000,2.000,"707,1",g\n', G),
    "--timeunit usec": (US + "75.0,3.000,2,1.500,1.500,1.000,2.000,0.707,g\n", G),
    "--timeunit msec": (MS + "75.0,0.003,2,0.002,0.002,0.001,0.002,0.001,g\n", G),
    "--timeunit sec": (S + "75.0,3.000000,2,1.500000,1.5,1.0,2.0,0.7,g\n", {"g": (3e9, 2, 1e9, 2e9)}),
    # Copies beside kernels; a trace has every launch.
    "cuda_gpu_sum": (HEAD.replace("Name", "Category,Operation") + f"{ROW}CUDA_KERNEL,gemm\n"
                     "25.0,1000,4,250.0,250.0,250,250,0.0,MEMORY_OPER,[CUDA memset]\n",
                     {"gemm": GEMM, "[CUDA memset]": COPY}),
    "cuda_gpu_trace": (TRACE, {"gemm(float *, int)": (80000.0, 2, 20000.0, 60000.0),
                               "[CUDA memcpy Host-to-Device]": (10000.0, 1, 10000.0, 10000.0)}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_kernels_of_every_form(tmp_path: Path, form: str) -> None:
    content, expected = FORMS[form]
    assert figures(imported(tmp_path / "k.csv", content)[1]["kernels"]) == {
        name: tuple(map(pytest.approx, values)) for name, values in expected.items()
    }


DECODE = "6000000,2,3000000.0,3000000.0,2000000,4000000,1414213.6,"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # 6 ms of decode in 2 ranges and 0.5 ms of sam; std 1.414 ms. Other ranges are no stages.
        (f"{NVTX}90.0,{DECODE}PushPop,:decode\n8.0,500000,1,500000.0,500000.0,500000,500000,0.0,PushPop,:sam\n"
         "2.0,100000,1,100000.0,100000.0,100000,100000,0.0,PushPop,NCCL:ncclAllReduce\n",
         {"decode": (3.0, 1.4142136, 2), "sam": (0.5, None, 1)}),
        (f"{NVTX.replace('Style,', '')}100.0,{DECODE}prefill\n", {"prefill": (3.0, 1.4142136, 2)}),
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Range\n"
         "100.0,6000000,2,3000000.0,2000000,4000000,prefill\n", {"prefill": (3.0, None, 2)}),
        (f"{NVTX.replace('(ns)', '(us)')}100.0,6000.000,2,3000.000,3000,2000,4000,1414.2136,PushPop,:clip\n",
         {"clip": (3.0, 1.4142136, 2)}),
    ],
    ids=["nvtx_sum", "nvtx_pushpop_sum", "nvtxppsum of 2021", "--timeunit usec"],
)  # fmt: skip
def test_ranges_of_stages_are_their_times(
    tmp_path: Path, content: str, expected: dict[str, tuple[float, float | None, int]]
) -> None:
    rows = imported(tmp_path / "n.csv", content)[1]["timings"]
    deviations = {row["stage"]: row["milliseconds"] for row in rows if row["aggregate"] == "std"}
    assert means(rows) == {of: (pytest.approx(mean), calls) for of, (mean, _, calls) in expected.items()}
    assert deviations == {of: pytest.approx(value) for of, (_, value, _) in expected.items() if value}
    assert all(row["inside_prefill"] == (row["stage"] in ("sam", "clip")) for row in rows)


def test_several_reports_of_one_file_are_one_run_and_the_rest_is_named(tmp_path: Path) -> None:
    nvtx = f"{NVTX}100.0,{DECODE}PushPop,:decode\n"
    calls = HEAD.replace("Instances", "Num Calls") + f"{ROW}cuLaunchKernel\n"
    by_shape = HEAD.replace("Name", "GridXYZ,BlockXYZ,Name") + f"{ROW}1 1 1,1 1 1,gemm\n"
    size = "Total (MB),Count,Avg (MB),Med (MB),Operation\n1.0,1,1.0,1.0,[CUDA memset]\n"
    said = SAID.replace("cuda_gpu_kern_sum", "osrt_sum")
    text = f"{said}{calls}\n{SAID}{CSV}\n{nvtx}\n{by_shape}\n{size}"
    record, found = imported(tmp_path / "all.csv", text)
    assert figures(found["kernels"]) == BOTH and means(found["timings"]) == {"decode": (3.0, 2)}
    note = str(record.notes)
    assert "(cuda_gpu_kern_sum, nvtx_sum)" in note and "Not taken of it: osrt_sum, the one with " in note
    assert note.count("the one with") == 2 and "the one with Total (MB), Count, Avg (MB)." in note


@pytest.mark.parametrize(
    "text",
    [
        GERMAN.replace("1.500,0", "1500.0", 1),  # both forms of figures
        CSV[:-3].rstrip("copy"),
        CSV[: CSV.index("copy") - 8],
        CSV.replace("3000", "3001", 1).replace("1500.0", "1600.0", 1),
        *(CSV.replace("1000,4", wrong) for wrong in ("-1000,4", "1_000,4", "nan,4", ",4", "1000,0")),
        *(CSV.replace("25.0,", wrong) for wrong in ("²5.0,", "125.0,")),
        CSV.replace('"void', "void"),
        CSV[: CSV.index('<(int)4, (bool)0>(T1)"')],
        CSV.replace("copy", " "),
        HEAD,
        CSV.replace("Instances", "Calls"),
        CSV.replace("(ns)", "(us)").replace("1500.0", "1510.0"),
        f"{CSV}\n{CSV.replace('707.1', '707.2')}",  # two profiles
        f"{CSV}\n{CSV.replace('(ns)', '(us)')}",  # the same numbers, of another unit
        "",
    ],
)
def test_a_kernel_summary_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(InvalidFile):
        kernels_of(text)


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        ("--capture-range=nvtx --nvtx-capture=prefill", "prefill"), ("-c nvtx -p sam", "sam"),
        ("--trace=cuda --nvtx-capture=prefill", None), ("-c nvtx --nvtx-capture=warmup", None),
    ],
)  # fmt: skip
def test_which_stage_was_captured(tmp_path: Path, options: str, stage: str | None) -> None:
    (tmp_path / "nsys").mkdir()
    (tmp_path / "nsys/summary_cuda_gpu_kern_sum.csv").write_text(CSV)
    (tmp_path / "nsys/cmd.txt").write_text(f"nsys profile {options} -o x")
    (run,) = read_run(RunFiles(tmp_path))
    assert [row["stage"] for row in run.tables["kernels"]] == [stage, stage]


# --- databases --------------------------------------------------------------------------------------

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

    def gid(process: int, thread: int = 0) -> int:
        """A number of a thread as nsys writes it."""
        return 1 << 48 | process << 24 | thread

    with closing(sqlite3.connect(file)) as database, database:

        def put(table: str, *values: object) -> None:
            marks = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO {table} VALUES ({marks})", values)

        database.executescript(SCHEMA)
        for number, name in enumerate(("gemm(float *)", "copy", "prefill", "sam"), start=1):
            put("StringIds", number, name)
        put("TARGET_INFO_GPU", 0, "NVIDIA H100")
        thread, other, runtime = gid(7, 7), gid(8, 8), "CUPTI_ACTIVITY_KIND_RUNTIME"
        ranges = [(0, 1000, 3, None), (100, 400, 4, None), (2000, 5000, None, "decode"),
                  (10_000, 13_000, 3, None), (14_000, 15_000, None, "decode")]  # fmt: skip
        for start, end, of, text in ranges:
            put("NVTX_EVENTS", start, end, 59, text, thread, of)
        put("NVTX_EVENTS", 0, 99, 34, "a mark", thread, None)
        # A kernel runs long after its launch, and belongs to where it was launched.
        for launch, took, name in ((200, 50, 1), (500, 70, 1), (2500, 20, 2), (2600, 30, 2), (9000, 5, 2)):
            put(runtime, launch, launch + 1, thread, launch)
            begin = launch + 4000
            put("CUPTI_ACTIVITY_KIND_KERNEL", begin, begin + took, launch, gid(7), name, name)
        # The second decode replays a graph, and copies what it made.
        for launch, start, table in ((14_200, 20_000, "GRAPH_TRACE"), (14_500, 20_450, "MEMCPY")):
            put(runtime, launch, launch + 1, thread, launch)
            put(f"CUPTI_ACTIVITY_KIND_{table}", start, start + 400, launch, gid(7))
        put(runtime, 2500, 2501, other, 200)
        put(runtime, 201, 202, thread, 200)  # the driver's call within the runtime's is the same launch


def test_stages_of_a_real_export_are_those_of_the_stage_timer(tmp_path: Path) -> None:
    """Three pages on a CPU under `nsys profile -t nvtx` 2023.4.4, without the tables that name the machine.

    The timer's are what `run` recorded of the same pages: 5 microseconds more, as it ends after the range.
    """
    timer = {
        "preprocess": 337.3884, "tokenizer": 1.0906, "sam": 682.9001, "clip": 33.1671, "projector": 1.5666,
        "vision_fusion": 2.3655, "prefill": 893.8112, "decode": 1434.019, "postprocess": 0.943,
    }  # fmt: skip
    file = Path(__file__).parent / "data" / "nsys-three-pages.sqlite.gz"
    rows = imported(tmp_path / "pages.sqlite", gzip.decompress(file.read_bytes()))[1]["timings"]
    found = {stage: milliseconds * calls for stage, (milliseconds, calls) in means(rows).items()}
    assert found == pytest.approx(timer, rel=0.02)


def test_a_database_has_kernels_by_stage_and_the_stages(tmp_path: Path) -> None:
    export(tmp_path / "made")
    record, found = imported(tmp_path / "r.sqlite", (tmp_path / "made").read_bytes())
    assert record.gpu == "NVIDIA H100"
    assert {(row["stage"], row["name"]): (row["total_ns"], row["instances"]) for row in found["kernels"]} == {
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


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("CREATE TABLE pages (a)", "no export of Nsight Systems"),
        (f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS}", "no export of Nsight Systems"),
        (f"{KERNEL} (9, 1)", "ended before it began"),
        (f"{KERNEL} ('a', x'00')", "a damaged database"),
        ("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text)", "no kernels and no range of a stage"),
    ],
)
def test_a_database_of_strangers_is_refused(tmp_path: Path, sql: str, reason: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        database.executescript(sql)
    with pytest.raises(InvalidFile, match=reason):
        nsys.read_database(RunFiles(tmp_path / "x.sqlite"))


def test_what_takes_too_long_is_too_large_or_torn_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.sqlite"
    export(file)
    more = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT k.* FROM CUPTI_ACTIVITY_KIND_KERNEL k, NVTX_EVENTS"
    with closing(sqlite3.connect(file)) as database, database:
        for _ in range(5):
            database.execute(more)
    (tmp_path / "torn.sqlite").write_bytes(file.read_bytes()[:9000])
    monkeypatch.setattr(nsys, "_STEPS", 10)
    for seconds, torn, reason in (
        (-1.0, "x", "takes more than -1 s"), (60.0, "x", "more than 100 kernels"), (60.0, "torn", "."),
    ):  # fmt: skip
        monkeypatch.setattr(nsys, "SECONDS", seconds)
        monkeypatch.setattr(nsys, "ROW_LIMIT", 100)
        with pytest.raises(InvalidFile, match=reason):
            nsys.read_database(RunFiles(tmp_path / f"{torn}.sqlite"))
