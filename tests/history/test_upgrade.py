"""Runs and packs of earlier versions are taken over once, whole, whenever it is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.history.checksums import write_checksums
from dsocr_core.history.exporters import flat
from dsocr_core.history.store import History
from dsocr_core.history.upgrade.upgrade import EARLIER, upgrade

OLD = Path(__file__).parent / "data" / "version-1" / "runs" / "run-of-version-1"
RUNS, PACKED = ("a", "b"), ("c", "d")
KILLED = 9


def named(run_id: str) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The run of version 1 under another name."""
    document = json.loads((OLD / "run.json").read_text()) | {"id": run_id}
    tables = {file.stem: pq.read_table(file) for file in OLD.glob("*.parquet")}
    for name, table in tables.items():
        ids = pa.array([run_id] * len(table), pa.string())
        tables[name] = table.set_column(table.column_names.index("run_id"), "run_id", ids)
    return document, tables


def old_history(root: Path) -> None:
    """Two runs and a pack of two, a file beside each."""
    for run_id in RUNS:
        folder = root / "runs" / run_id
        (folder / "viz").mkdir(parents=True)
        document, tables = named(run_id)
        (folder / "run.json").write_text(json.dumps(document))
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
        (folder / "viz" / "note.txt").write_text(run_id)
    pack = root / "packs" / "pack-1"
    pack.mkdir(parents=True)
    packed = [named(run_id) for run_id in PACKED]
    (pack / "pack.json").write_text(json.dumps({"schema_version": 1, "runs": [run for run, _ in packed]}))
    for name in packed[0][1]:
        pq.write_table(pa.concat_tables([tables[name] for _, tables in packed]), pack / f"{name}.parquet")
    for run_id in PACKED:
        (pack / "files" / run_id / "viz").mkdir(parents=True)
        (pack / "files" / run_id / "viz" / "note.txt").write_text(run_id)
    with History(root) as history:
        assert len(history) == 0
        for run_id in (*RUNS, *PACKED):
            assert run_id not in history


def check(root: Path) -> None:
    """Every run is there, with every figure of the old tables, and what lay beside them."""
    with History(root) as history:
        assert not history.problems and history.run_ids() == [*RUNS, *PACKED]
        for run_id in history.run_ids():
            found = flat(history.tables(run_id))
            for name, old in named(run_id)[1].items():
                if name != "parity":  # judged anew
                    rows = [renamed(row) for row in old.to_pylist()]
                    same = [{key: row[key] for key in rows[0]} for row in found[name].to_pylist()]
                    assert same == rows
            assert history.file(run_id, "viz/note.txt").read_text() == run_id
    assert not (root / EARLIER).exists()


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Roads are backends now."""
    road = row.pop("road", None)
    return row if road is None else {**row, "backend": "eager" if road == "ours" else road}


def test_runs_and_packs_are_taken_over_once(tmp_path: Path) -> None:
    old_history(tmp_path)
    assert upgrade(tmp_path).runs == 4
    assert upgrade(tmp_path).runs == 0
    check(tmp_path)


def test_a_damaged_run_stays_where_it_is_and_is_named(tmp_path: Path) -> None:
    old_history(tmp_path)
    file = tmp_path / "runs" / "a" / "images.parquet"
    file.write_bytes(b"PAR1")
    done = upgrade(tmp_path)
    assert done.runs == 3 and list(done.failed) == ["runs/a"] and file.read_bytes() == b"PAR1"


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("runs/a", "run.json"),
        ("runs/a", "images.parquet"),
        ("runs/a", "viz/note.txt"),
        ("runs/a", "SHA256SUMS"),
        ("packs/pack-1", "pack.json"),
        ("packs/pack-1", "files/c/viz/note.txt"),
    ],
)
def test_what_is_not_as_its_checksums_say_stays_and_is_named(tmp_path: Path, entry: str, name: str) -> None:
    old_history(tmp_path)
    for each in (*(f"runs/{run_id}" for run_id in RUNS), "packs/pack-1"):
        write_checksums(tmp_path / each)
    file = tmp_path / entry / name
    whole = file.read_bytes()
    # A digit of a document, a byte of a picture: it can be read as well as before.
    damaged = whole.replace(b"1", b"2", 1) if b"1" in whole else whole + b" "
    file.write_bytes(damaged)
    done = upgrade(tmp_path)
    assert list(done.failed) == [entry] and done.failed[entry].startswith(f"{name}: damaged")
    assert file.read_bytes() == damaged
    file.write_bytes(whole)
    upgrade(tmp_path)
    check(tmp_path)


def test_a_file_that_its_checksums_name_and_is_gone_is_named(tmp_path: Path) -> None:
    old_history(tmp_path)
    write_checksums(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "b" / "images.parquet").unlink()
    done = upgrade(tmp_path)
    assert done.runs == 3 and done.failed == {"runs/b": "images.parquet: missing"}


def dies_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process end at its n-th rename or synchronised file, with nothing cleared up."""
    left = [step]
    for name in ("rename", "fsync"):
        real = getattr(os, name)

        def stop(*given: Any, real: Any = real, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os._exit(KILLED)
            return real(*given, **options)

        monkeypatch.setattr(os, name, stop)


def test_killed_at_any_step_the_next_call_makes_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_history(tmp_path / "old")
    pa.set_cpu_count(1)
    for step in range(1, 400, 7):
        root = tmp_path / f"{step}"
        shutil.copytree(tmp_path / "old", root)
        child = os.fork()
        if child == 0:
            dies_at(step, monkeypatch)
            upgrade(root)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        upgrade(root)
        check(root)
        shutil.rmtree(root)
        if ended == 0:
            break
    assert ended == 0 and step > 20
