"""Trees, archives and runs of ours: each run once, strangers' files refused by name and within bounds."""

from __future__ import annotations

import json
import os
import random
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import detect
from dsocr_core.runs.importers import own_run as own_runs
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.imported import ImportReport, RunFiles
from dsocr_core.runs.importers.own_run import read_own_run
from tests.runs.importers.test_profiles import CSV
from tests.support.made_up_runs import record, timing, write_run

HOSTILE = [
    'it\'s "quoted"', "'; DROP TABLE runs; --", "<img src=x onerror=alert(1)>", "../../../etc/passwd",
    "x" * 4000, "📄 straße 测试", "=cmd|' /C calc'!A0", "a,b\nc\td", "",
]  # fmt: skip


def reasons_of(report: ImportReport) -> dict[str, str]:
    return {item.path.name: item.reason for item in report.skipped}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run of llm-perf-opt in a tree."""
    root = tmp_path / "tree" / "20251107-101112"
    (root / "torch_profiler" / "pred").mkdir(parents=True)
    line = json.dumps({"image": "/data/page.png", "text_raw": "Invoice", "prefill_ms": 95.5})
    (root / "torch_profiler/pred/predictions.jsonl").write_text(line + "\n")
    return root


def test_a_folder_of_garbage_empty_truncated_and_huge_files(
    history: History, tmp_path: Path, run: Path
) -> None:
    tree = run.parent
    for name, content in (
        ("garbage.json", random.Random(2).randbytes(5000)), ("empty.csv", b""), ("archive.zip", b"PK"),
        ("truncated.csv", CSV[:-20].encode()), ("huge.csv", CSV.encode()), ("good.csv", CSV.encode()),
    ):  # fmt: skip
        (tree / name).write_bytes(content)
    os.truncate(tree / "huge.csv", 40 * 1024**3)  # sparse: it takes no room
    (tree / "link").symlink_to("/etc")
    (tree / "loop").symlink_to(tree)
    os.mkfifo(tree / "pipe.csv")
    (compute := run / "static_compute.json").touch()
    os.truncate(compute, 10 * 1024**3)
    report = import_paths(history, [tree])
    assert {taken.source for taken in report.imported} == {"llm-perf-opt", "nsys"}
    reasons = reasons_of(report)
    assert reasons.keys() == {
        "garbage.json", "empty.csv", "truncated.csv", "huge.csv", "archive.zip", "link", "loop", "pipe.csv",
        "static_compute.json",
    }  # fmt: skip
    assert "are read" in reasons["huge.csv"] and "are read" in reasons["static_compute.json"]
    assert reasons["empty.csv"] == "empty" and reasons["loop"] == "a link; give the path it leads to"


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("DEPTH_LIMIT", "deeper than 4 folders"), ("FILE_LIMIT", "stopped here: more than 4")],
)
def test_a_tree_without_end_is_left_in_time(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(detect, limit, 4)
    (tmp_path / "deep" / "/".join("abcdefgh")).mkdir(parents=True)
    [skipped] = import_paths(history, [tmp_path / "deep"]).skipped
    assert skipped.reason.startswith(reason)


def test_hostile_names_change_nothing_but_themselves(history: History, tmp_path: Path, run: Path) -> None:
    """In page names, texts, CSV cells, file names, settings and notes of the files."""
    for name in HOSTILE:
        file_name = name.replace("/", "∕").encode()[:200].decode(errors="ignore") or "k"
        cell = '"' + (name or "k").replace('"', '""') + '"'
        kernels = run.parent / f"{file_name}.csv"
        kernels.write_text(CSV.replace("copy", cell), newline="")
        line = {"image": name or "p", "text_raw": name, "prefill_ms": 1.0}
        (run / "torch_profiler/pred/predictions.jsonl").write_text(json.dumps(line) + "\n")
        (run / "config.yaml").write_text(yaml.safe_dump({"experiment": name, name: {"x": name}}))
        ids = {taken.source: taken.run_id for taken in import_paths(history, [run.parent]).imported}
        assert history.tables(ids["nsys"])["kernels"].to_pylist()[1]["name"] == (name or "k")
        (image,) = history.tables(ids["llm-perf-opt"])["readings"].to_pylist()
        assert (image["path"], image["text_raw"]) == (name or "p", name or None)
        settings = history.record(ids["llm-perf-opt"]).settings
        assert settings == {"experiment": name, name: {"x": name}}
        kernels.unlink()
    assert len(history) == 2 * len(HOSTILE) and history.problems == {}
    assert {path.name for path in tmp_path.iterdir()} == {"history", "tree"}


# --- archives -----------------------------------------------------------------------------------


def test_an_archive_is_a_tree_and_what_is_odd_in_it_costs_itself(
    history: History, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_runs, "FILE_BYTES", 1_000_000)
    monkeypatch.setattr(own_runs, "BYTES_LIMIT", 1_500_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    file = tmp_path / "upload.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in run.rglob("*"):
            zipped.write(path, Path("20251107-101112") / path.relative_to(run))
        for name, text in (
            ("note.txt", "hello"), ("../outside.csv", CSV), ("/absolute.csv", CSV), ("a/" * 500 + "b", "{}"),
            ("big.csv", "0" * 50_000_000), ("good.csv", CSV), *((f"{n}.csv", "0" * 900_000) for n in (1, 2)),
        ):  # fmt: skip
            zipped.writestr(name, text)
        link = zipfile.ZipInfo("link.csv")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    content = bytearray(file.read_bytes())
    # big.csv says of itself that it has 4 bytes.
    listed = content.rindex(b"PK\x01\x02", 0, content.rindex(b"big.csv"))
    content[listed + 24 : listed + 28] = b"\4\0\0\0"
    file.write_bytes(content)
    report = import_paths(history, [file])
    assert {taken.origin.relative_to(file).as_posix() for taken in report.imported} == {
        "20251107-101112", "good.csv"
    }  # fmt: skip
    out, deep, none = "its name leads out of", "deeper than 24 folders", "looks like nothing that the"
    expected = {
        "outside.csv": out, "absolute.csv": out, "b": deep, "note.txt": none, "1.csv": none,
        "2.csv": "more than ", "link.csv": "not a regular file", "big.csv": "cannot be unpacked (Bad CRC",
    }  # fmt: skip
    reasons = reasons_of(report)
    assert reasons.keys() == expected.keys()
    assert all(reasons[name].startswith(begin) for name, begin in expected.items()), reasons
    assert not list((tmp_path / "temporary").iterdir()) and not list(tmp_path.rglob("outside.csv"))
    assert len(import_paths(history, [run]).known) == 1  # the folder itself is the same run


# --- runs of ours whose tables are not what they say ------------------------------------------------


def own_run(folder: Path, table: str, rows: pa.Table) -> Path:
    """A directory like one of the history's, its table from elsewhere."""
    folder.mkdir(parents=True)
    document = record("bomb").to_json() | {"tables": {table: len(rows)}}
    (folder / "run.json").write_text(json.dumps(document))
    pq.write_table(rows, folder / f"{table}.parquet", compression="zstd", store_schema=False)
    write_checksums(folder)
    return folder


def test_a_small_table_that_stands_for_gigabytes_is_refused_without_holding_them(tmp_path: Path) -> None:
    rows = 4000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 1_000_000]))
    table = pa.table({"run_id": ["bomb"] * rows, "page": ["p"] * rows, "text_raw": text})
    folder = own_run(tmp_path / "bomb", "readings", table)
    assert (folder / "readings.parquet").stat().st_size < 20_000
    with pytest.raises(InvalidFile, match="bytes unpacked"):
        read_own_run(RunFiles(folder))
    assert pa.default_memory_pool().max_memory() < 2**30


def test_a_list_of_checksums_leads_to_no_file_outside_of_its_run(tmp_path: Path) -> None:
    folder = own_run(tmp_path / "run", "timings", pa.table({"run_id": pa.array([], pa.string())}))
    (tmp_path / "secret").write_text("x")
    write_checksums(folder, {"../secret": tmp_path / "secret"})
    with pytest.raises(InvalidFile, match="a file outside of the run"):
        read_own_run(RunFiles(folder))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        *(({"milliseconds": [value]}, "milliseconds") for value in (-1.0, float("nan"), float("inf"))),
        ({}, "timings.parquet: a column appears twice"),
        *(({"run_id": value}, "timings.parquet: rows of another run") for value in (["another"], [3])),
        *(({name: [value]}, "") for name in ("run_id", "stage") for value in (["bomb"], b"\xff", {"a": 1})),
    ],
)
def test_a_value_or_a_column_that_no_run_has_costs_its_run_alone(
    history: History, tmp_path: Path, more: dict[str, list[object]], reason: str
) -> None:
    row = {"run_id": ["bomb"], "backend": ["eager"], "stage": ["sam"], "milliseconds": [1.0],
           "inside_prefill": [False], "aggregate": ["page"]}  # fmt: skip
    table = pa.table(row | more)
    table = table if more else table.append_column("stage", table["backend"])
    folder = own_run(tmp_path / "there" / "odd", "timings", table)
    write_run(tmp_path, "whole", [timing("page", "decode", 1.0)])
    [skipped] = import_paths(history, [folder, tmp_path / "runs"]).skipped
    assert reason in skipped.reason and "\n" not in skipped.reason and history.run_ids() == ["whole"]
