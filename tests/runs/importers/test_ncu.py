"""Nsight Compute: its tables and folders, and every way in which they can be broken."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from tests.support.launches import launches_in
from tests.support.paths import SHARED

SAMPLES = SHARED / "data" / "llm-perf-opt" / "ncu"
HEAD = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name",
    "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
)  # fmt: skip
SPEED = "GPU Speed Of Light Throughput"
FIGURES = (
    (SPEED, "Elapsed Cycles", "cycle", "46,970"),
    (SPEED, "Duration", "us", "23.42"),
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


def metrics_of(found: Any) -> list[tuple[str, float | None, str | None]]:
    return [(metric.metric, metric.value, metric.unit) for metric in found.metrics]


TABLE = written(*launch(0), *launch(1, "softmax"))


def test_a_table_has_its_launches_with_figures_units_and_rules() -> None:
    first, second = launches_in(TABLE)
    assert (first.launch, first.kernel, first.block, first.grid, first.stage, second.kernel) == (
        0, "gemm", "(128, 1, 1)", "(2, 1, 1)", None, "softmax",
    )  # fmt: skip
    assert metrics_of(first) == [
        ("Elapsed Cycles", 46970.0, "cycle"), ("Duration", 23.42, "us"),
        ("Function Cache Configuration", None, None), ("Achieved Occupancy", None, "%"),
    ]  # fmt: skip
    assert [metric.text for metric in first.metrics] == [text for *_, text in FIGURES]
    (rule,) = first.rules
    assert (rule.rule, rule.type, rule.text, rule.speedup_percent) == (
        "TheoreticalOccupancy", "OPT", "Use fewer registers.", 38.17,
    )  # fmt: skip


def test_a_raw_page_has_a_row_a_launch_its_units_first_and_its_innermost_range_of_a_stage() -> None:
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
    first, second = launches_in(raw)
    assert metrics_of(first) == [("time.sum", 23.42, "us"), ("cache", None, None), ("sm.pct", 41.49, "%")]
    assert metrics_of(second) == [("time.sum", 1002.5, "us"), ("sm.pct", 0.0, "%")]
    details = (*HEAD[:4], column, *HEAD[4:])
    (found,) = launches_in(written(*((*row[:4], ranges, *row[4:]) for row in launch(0)), head=details))
    assert (first.stage, second.stage, found.stage, len(found.metrics)) == ("sam", None, "sam", 4)


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
    cells: dict[str, str], values: list[float] | str
) -> None:
    """Nothing is of 45,678 %, no thousands begin with 0, a count has no decimals."""
    text = written(*launch(0, "k", *((SPEED, f"of {unit}", unit, cell) for unit, cell in cells.items())))
    if isinstance(values, list):
        assert [metric.value for metric in launches_in(text)[0].metrics] == values
    else:
        with pytest.raises(InvalidFile, match=values):
            launches_in(text)


def test_averages_by_kernel_are_a_launch_a_kernel_and_shape() -> None:
    head = "Process ID,Process Name,Kernel Name,Block Size,Grid Size,Invocations,Section Name,Metric Name"
    begin = ("1", "python", "gemm", "(1, 1, 1)")
    rows = [
        (*begin, "(64, 1, 1)", "14", "Occupancy", "Achieved Occupancy", "%", "73.56", "79.38", "74.92"),
        (*begin, "(64, 1, 1)", "14", "Speed", "Duration", "us", "1,000.00", "3,000.00", "2,000.00"),
        (*begin, "(8, 1, 1)", "2", "Speed", "Duration", "us", "1.00", "3.00", "2.00"),
    ]
    columns = (*head.split(","), "Metric Unit", "Minimum", "Maximum", "Average")
    first, second = launches_in("==PROF== Connected\n" + written(*rows, head=columns))
    values = {metric.metric: metric.value for metric in first.metrics}
    assert values == {"Achieved Occupancy": 74.92, "Duration": 2000.0, "Invocations": 14}
    assert (first.grid, second.grid, second.launch) == ("(64, 1, 1)", "(8, 1, 1)", 1)


TWICE = written(*launch(0), *launch(0))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ID,Kernel Name\n", "a head and no rows"),
        ("name,value\n1,2\n", "it has no table"),
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
    ],
)
def test_what_is_no_whole_table_is_named(text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason):
        launches_in(text)
    assert launches_in(TWICE) == launches_in(written(*launch(0)))  # the same again changes nothing


# --- files and folders ----------------------------------------------------------------------------


def test_tables_of_both_tools_and_lines_of_the_program_in_a_file_are_a_run_each(
    history: History, tmp_path: Path
) -> None:
    nsys = "Time (%),Total Time (ns),Instances,Name\n100.0,3000,2,gemm\n"
    head, *rows = TABLE.splitlines()
    lines = ["step 1", "==PROF== Connected", head, *rows[:2], 'he said "stop', "", *rows[2:], "done"]
    (tmp_path / "all.txt").write_text("\n".join([nsys, *lines]) + "\n")
    report = import_paths(history, [tmp_path])
    ids = {run.source: run.run_id for run in report.imported}
    assert ids.keys() == {"ncu", "nsys"} and not report.skipped
    record = history.record(ids["ncu"])
    assert record.profiled and "2 launches of 2 kernels in all.txt" in str(record.notes)
    metrics, _ = history.query("launch_metrics", run_ids=[ids["ncu"]])
    found = metrics.loc[metrics["metric"] == "Duration", ["kernel", "launch", "value", "unit"]]
    assert found.to_numpy().tolist() == [["gemm", 0, 23.42, "us"], ["softmax", 1, 23.42, "us"]]
    rules = history.sql(f"FROM kernel_rules WHERE run_id = '{ids['ncu']}'")
    assert rules["text"].tolist() == ["Use fewer registers."] * 2


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
