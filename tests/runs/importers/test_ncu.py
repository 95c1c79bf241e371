"""Nsight Compute: its tables and folders, and every way in which they can be broken."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from pathlib import Path

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.stages import Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.imported import unpacked
from tests.support.launches import launches_in
from tests.support.paths import ROOT

SAMPLES = ROOT.parent / "shared" / "data" / "llm-perf-opt" / "ncu"
with_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
HEAD = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name",
    "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
)  # fmt: skip
SPEED = "GPU Speed Of Light Throughput"
FIGURES = (
    (SPEED, "Elapsed Cycles", "cycle", "46,970"),
    (SPEED, "Duration", "us", "23.42"),
    (SPEED, "Compute (SM) Throughput", "%", "41.49"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Occupancy", "Achieved Occupancy", "%", "n/a"),
)
RULE = ("Occupancy", "", "", "", "TheoreticalOccupancy", "OPT", "Use fewer registers.", "global", "38.17")


def written(*rows: tuple[str, ...], head: tuple[str, ...] = HEAD) -> str:
    """As ncu writes: all cells quoted, lines of metrics shorter than those of rules."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def launch(number: int, kernel: str = "gemm", *rows: tuple[str, ...]) -> list[tuple[str, ...]]:
    place = ("1", "7", "(128, 1, 1)", "(2, 1, 1)", "0", "9.0")
    start = (str(number), "7", "python", "127.0.0.1", kernel, *place)
    return [(*start, *row, "") if len(row) == 4 else (*start, *row) for row in (rows or (*FIGURES, RULE))]


TABLE = written(*launch(0), *launch(1, "softmax"))


# --- a table --------------------------------------------------------------------------------------


def test_a_table_has_its_launches_with_figures_units_and_rules() -> None:
    first, second = launches_in(TABLE)
    assert (first.launch, first.kernel, first.block, first.grid, first.stage) == (
        0, "gemm", "(128, 1, 1)", "(2, 1, 1)", None,
    )  # fmt: skip
    assert second.kernel == "softmax"
    assert [(metric.metric, metric.value, metric.unit, metric.text) for metric in first.metrics] == [
        ("Elapsed Cycles", 46970.0, "cycle", "46,970"),
        ("Duration", 23.42, "us", "23.42"),
        ("Compute (SM) Throughput", 41.49, "%", "41.49"),
        ("Function Cache Configuration", None, None, "CachePreferNone"),
        ("Achieved Occupancy", None, "%", "n/a"),
    ]
    (rule,) = first.rules
    assert (rule.rule, rule.type, rule.text, rule.speedup_percent) == (
        "TheoreticalOccupancy", "OPT", "Use fewer registers.", 38.17,
    )  # fmt: skip


def test_the_stage_is_that_of_the_innermost_range_on_the_details_and_the_raw_page() -> None:
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    ranges = (
        '647  "<default domain>:prefill:none:none:RGB:0xff:REGISTERED:prefill" '
        '"<default domain>:sam:none:none:RGB:0xff:REGISTERED:sam" '
    )
    details = written(
        *((*row[:4], ranges, *row[4:]) for row in launch(0)), head=(*HEAD[:4], column, *HEAD[4:])
    )
    raw = written(
        ("", "", "", "us"), ("0", "gemm", ranges, "23"), head=("ID", "Kernel Name", column, "Duration")
    )
    for text, metrics in ((details, 5), (raw, 1)):
        (found,) = launches_in(text)
        assert (found.stage, len(found.metrics)) == (Stage.SAM, metrics)


def test_a_raw_page_has_a_row_a_launch_and_its_units_first() -> None:
    head = (*HEAD[:11], "gpu__time_duration.sum", "launch__func_cache_config", "sm__throughput.avg.pct")
    rows = [
        (*("",) * 11, "us", "", "%"),
        (*launch(0)[0][:11], "23.42", "CachePreferNone", "41.49"),
        (*launch(1, "softmax")[0][:11], "1,002.50", "", "0"),
    ]
    first, second = launches_in(written(*rows, head=head))
    assert [(metric.metric, metric.value, metric.unit) for metric in first.metrics] == [
        ("gpu__time_duration.sum", 23.42, "us"),
        ("launch__func_cache_config", None, None),
        ("sm__throughput.avg.pct", 41.49, "%"),
    ]
    assert [metric.value for metric in second.metrics] == [1002.5, 0.0]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ({"a": "1.234,5", "us": "23,42", "b": "46.970", "c": "12"}, [1234.5, 23.42, 46970.0, 12.0]),
        ({"us": "1,235", "%": "45.678", "cycle": "24,450"}, [1235.0, 45.678, 24450.0]),
        ({"us": "1,235", "%": "45,678", "cycle": "24.450"}, [1.235, 45.678, 24450.0]),
        ({"us": "1,235", "%": "0,678", "cycle": "24.450"}, [1.235, 0.678, 24450.0]),
        ({"us": "1,235", "cycle": "24.450"}, r"row 3: '24.450' is no count.*LC_ALL=C"),
        ({"a": "1.234,5", "b": "23,42", "%": "41.49"}, r"row 4: '41.49' and '1.234,5' in row 2 are fig"),
    ],
)  # fmt: skip
def test_a_figure_of_any_locale_is_never_a_thousandfold(
    cells: dict[str, str], values: list[float] | str
) -> None:
    """Nothing is of 45,678 %, no thousands begin with 0, a count has no decimals."""
    text = written(*launch(0, "k", *((SPEED, f"of {unit}", unit, cell) for unit, cell in cells.items())))
    if isinstance(values, list):
        (found,) = launches_in(text)
        assert [metric.value for metric in found.metrics] == values
        return
    with pytest.raises(InvalidFile, match=values):
        launches_in(text)


def test_a_row_that_says_the_same_again_changes_nothing_and_one_that_does_not_is_refused() -> None:
    assert launches_in(written(*launch(0), *launch(0))) == launches_in(written(*launch(0)))
    other = launch(0, "gemm", (SPEED, "Duration", "us", "9.9"))
    with pytest.raises(InvalidFile, match=r"row 8: Duration of launch 0 is 9.9, above 23.42"):
        launches_in(written(*launch(0), *other))
    with pytest.raises(InvalidFile, match="row 8: launch 0 is another kernel above"):
        launches_in(written(*launch(0), *launch(0, "softmax")))


def test_tables_of_both_tools_in_a_file_are_a_run_each(history: History, tmp_path: Path) -> None:
    nsys = "Time (%),Total Time (ns),Instances,Name\n100.0,3000,2,gemm\n"
    (tmp_path / "all.txt").write_text(f"{nsys}\nstep 1\n{TABLE}")
    report = import_paths(history, [tmp_path])
    assert sorted(run.source for run in report.imported) == ["ncu", "nsys"] and not report.skipped
    (tmp_path / "two.csv").write_text(TABLE + written(*launch(0, "other")))
    (skipped,) = import_paths(history, [tmp_path / "two.csv"]).skipped
    assert skipped.reason == "it has 2 tables of Nsight Compute: give each a file of its own"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ID,Kernel Name\n", "a head and no rows"),
        ("name,value\n1,2\n", "it has 0 tables"),
        (TABLE.replace('"0","7"', '"zero","7"', 1), "'zero' is no launch's ID"),
        (TABLE.replace('"gemm"', '""', 1), "row 2 names no kernel"),
        (TABLE.replace('"Stream"', '"Context"', 1), "a column appears twice"),
        (TABLE.replace('"Stream"', '"id"', 1), "a column appears twice"),
        (TABLE.replace('"Metric Value"', '"Metric Value (us)"', 1), "not whole"),
        (written(("0", "k", "1"), head=("ID", "Kernel Name", "sm__x")), "row 2 has no units, or"),
        (written(("", "", "%"), head=("ID", "Kernel Name", "sm__x")), "or no kernel follows it"),
    ],
)
def test_what_is_no_whole_table_is_named(text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason):
        launches_in(text)


# --- files and folders ----------------------------------------------------------------------------


def kernel_folder(folder: Path, number: int, *tables: tuple[str, str]) -> Path:
    place = folder / f"kernel_{number:04}_{number:032x}"
    place.mkdir(parents=True)
    for name, text in tables:
        (place / name).write_text(text, encoding="utf-8")
    return place


def test_a_table_by_itself_is_a_profiled_run(history: History, tmp_path: Path) -> None:
    (tmp_path / "decode.csv").write_text("the program's own line\n" + TABLE, encoding="utf-8")
    (tmp_path / "decode.csv.gz").write_bytes(gzip.compress(b"the program's own line\n" + TABLE.encode()))
    report = import_paths(history, [tmp_path / "decode.csv", tmp_path / "decode.csv.gz"])
    assert [run.source for run in report.imported] == ["ncu"]
    assert [run.run_id for run in report.known] == [run.run_id for run in report.imported]
    run = report.imported[0].run_id
    record = history.record(run)
    assert record.profiled and "2 launches of 2 kernels in decode.csv" in str(record.notes)
    metrics, _ = history.query("launch_metrics", run_ids=[run])
    duration = metrics[metrics["metric"] == "Duration"].iloc[1]
    assert (duration["kernel"], duration["launch"], duration["value"], duration["unit"]) == (
        "softmax", 1, 23.42, "us",
    )  # fmt: skip
    rules = history.sql(f"FROM kernel_rules WHERE run_id = '{run}'")
    assert rules["text"].tolist() == ["Use fewer registers."] * 2


def test_a_folder_of_kernels_is_one_run_in_their_order(history: History, tmp_path: Path) -> None:
    folder = tmp_path / "20251107-142857"
    kernel_folder(folder, 2, ("ncu.details.csv", written(*launch(0, "softmax"))))
    kernel_folder(folder, 1, ("ncu.details.csv", written(*launch(0))))
    (folder / "command.yaml").write_text(
        "timestamp: '2025-11-07T14:28:57+08:00'\nsections: [Occupancy]\nlaunch_command: [python, -m, tool]\n"
    )
    (folder / "analysis").mkdir()
    (folder / "analysis" / "metrics_summary.csv").write_text("a,b\n")
    (folder / "kernel.ncu-rep").write_bytes(b"x")
    report = import_paths(history, [folder])
    (run,) = report.imported
    record = history.record(run.run_id)
    assert record.created.startswith("2025-11-07T06:28:57") and record.command == "python -m tool"
    launches, _ = history.query("launches", run_ids=[run.run_id])
    assert launches["kernel"].tolist() == ["gemm", "softmax"]
    assert {item.path.name for item in report.skipped} == {"metrics_summary.csv", "kernel.ncu-rep"}


def test_what_is_broken_in_a_folder_is_named_and_the_rest_is_taken(history: History, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    whole = written(*launch(0))
    kernel_folder(folder, 1, ("ncu.details.csv", whole))
    kernel_folder(folder, 2, ("ncu.details.csv", written(*launch(0, "cut"))[:-200]))
    kernel_folder(folder, 3, ("ncu.details.csv", ""))
    kernel_folder(folder, 4, ("ncu.details.csv", whole))
    kernel_folder(folder, 5, ("ncu.section_Occupancy.csv", written(*launch(0, "sections", RULE))))
    kernel_folder(
        folder, 6,
        ("ncu.details.csv", written(*launch(0, "both"))),
        ("ncu.metrics.csv", written(*launch(0, "both", ("Command line profiler metrics", "x.sum", "", "5")))),
        ("ncu.section_SpeedOfLight.csv", written(*launch(0, "both", (SPEED, "Duration", "us", "1")))),
    )  # fmt: skip
    report = import_paths(history, [folder])
    (run,) = report.imported
    launches, _ = history.query("launches", run_ids=[run.run_id])
    assert launches["kernel"].tolist() == ["gemm", "sections", "both"]
    metrics, _ = history.query("launch_metrics", run_ids=[run.run_id])
    both = metrics[metrics["kernel"] == "both"].set_index("metric")["value"]
    assert both["x.sum"] == 5 and both["Duration"] == 23.42
    reasons = {
        str(item.path.relative_to(folder))[:11] + item.path.name[-12:]: item.reason for item in report.skipped
    }
    assert sorted(reason[:28] for reason in reasons.values()) == [
        "empty", "not there; the sections' own",
        "not whole: row 6: unexpected",
        "row 2: Duration of launch 0 ", f"the same as kernel_0001_{'0' * 4}",
    ]  # fmt: skip


def test_a_gzip_file_is_unpacked_within_bounds(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for content, reason in (
        (gzip.compress(b"0" * 50_000), "more than 10,000 bytes when unpacked"),
        (gzip.compress(b"0" * 5_000)[:-4], "not a whole gzip file"),
    ):
        file.write_bytes(content)
        with pytest.raises(InvalidFile, match=reason):
            unpacked(file, 10_000)


# What the program prints stands before the table and between its rows.
_HEAD = ",".join(f'"{name}"' for name in HEAD[:15])
_ROW = '"{}","7","python","h","{}","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","S","Duration","us","{}"'


def test_lines_of_the_program_between_the_rows_are_left_out(history: History, tmp_path: Path) -> None:
    lines = [
        "loading the model, 3 pages", "==PROF== Connected to process 7 (python)", _HEAD,
        _ROW.format(0, "gemm", "2.50"), "step 1, loss 0.5", 'he said "stop', "", "==PROF== Disconnected",
        _ROW.format(1, "copy", "1,024.00"), "done",
    ]  # fmt: skip
    (tmp_path / "ncu.log").write_text("\n".join(lines) + "\n")
    (run,) = import_paths(history, [tmp_path / "ncu.log"]).imported
    metrics, _ = history.query("launch_metrics", run_ids=[run.run_id])
    assert [(row.kernel, row.value, row.unit) for row in metrics.itertuples()] == [
        ("gemm", 2.5, "us"), ("copy", 1024.0, "us"),
    ]  # fmt: skip


@pytest.mark.parametrize("columns", ["few", "all"])
def test_averages_by_kernel_are_a_launch_a_kernel_and_shape(columns: str) -> None:
    more = '"Block Size","Grid Size","Device","CC",' if columns == "all" else ""
    shapes = [f'"(1, 1, 1)","({grid}, 1, 1)","0","9.0",' for grid in (64, 8)] if more else [""]
    begin = '"1","python","127.0.0.1","gemm",{}"14",'
    occupancy = begin + '"Occupancy","Achieved Occupancy","%","73.56","79.38","{}"'
    text = "\n".join([
        "==PROF== Connected", f'"Process ID","Process Name","Host Name","Kernel Name",{more}"Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"',
        occupancy.format(shapes[0], "74.92"),
        begin.format(shapes[0]) + '"Speed","Duration","us","1,000.00","3,000.00","2,000.00"',
        *(occupancy.format(shape, "50.00") for shape in shapes[1:]),
    ])  # fmt: skip
    found = launches_in(text + "\n")
    assert [launch.launch for launch in found] == ([0, 1] if more else [0])
    values = {(metric.section, metric.metric): metric.value for metric in found[0].metrics}
    assert values == {
        ("Occupancy", "Achieved Occupancy"): 74.92,
        ("Speed", "Duration"): 2000.0,
        (None, "Invocations"): 14,
    }
    assert found[0].grid == ("(64, 1, 1)" if more else None)
    assert len(found) < 2 or found[1].metrics[0].value == 50.0


# --- the samples ----------------------------------------------------------------------------------


@with_samples
def test_every_figure_of_the_samples_is_in_the_history_as_the_table_has_it(
    history: History, tmp_path: Path
) -> None:
    folder = tmp_path / "ncu"
    shutil.copytree(SAMPLES, folder, copy_function=shutil.copyfile)
    report = import_paths(history, [folder])
    (run,) = report.imported
    metrics, _ = history.query("launch_metrics", run_ids=[run.run_id])
    keys = ["number", "section", "metric", "unit"]
    had = metrics.fillna({"unit": ""}).set_index(keys)[["text", "value"]].to_dict("index")
    folders = sorted(path for path in SAMPLES.iterdir() if path.name.startswith("kernel_"))
    counted = 0
    for number, kernel in enumerate(folders):
        for file in kernel.glob("*.csv"):
            with file.open(encoding="utf-8", newline="") as handle:
                for row in csv.DictReader(handle):
                    if row["Metric Name"]:
                        key = (number, row["Section Name"], row["Metric Name"], row["Metric Unit"])
                        text, value = had[key]["text"], had[key]["value"]
                        assert text == row["Metric Value"]
                        assert text == "n/a" if value != value else value == float(text.replace(",", ""))
                        counted += 1
    assert counted > 8 * 60 and len(folders) == 8
