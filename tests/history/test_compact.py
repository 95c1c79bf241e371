"""Folding changes no answer, at no moment; emptying the trash deletes what is in it and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

from dsocr_core.history import compact as module
from dsocr_core.history.compact import compact, empty_trash
from dsocr_core.history.queries import QUERIES
from dsocr_core.history.queries.query import REQUIRED
from dsocr_core.history.storage.base import StorageError
from dsocr_core.history.storage.local import LocalStorage
from dsocr_core.history.store import History
from dsocr_core.history.writer import RunWriter
from tests.support.made_up_runs import HOSTILE, copy_all_tables, record, timing

RUNS = 7


def write_runs(root: Path, count: int = RUNS) -> None:
    random = np.random.default_rng(3)
    for number in range(count):
        with RunWriter(root, record(f"run-{number}", created=f"2026-01-0{number + 1}")) as writer:
            for page in range(4):
                name = HOSTILE[(number + page) % len(HOSTILE)]
                times = [timing(name, stage, float(random.lognormal(3))) for stage in ("sam", "decode")]
                writer.add("stage_timings", times)
                writer.add(
                    "images",
                    [{"page": name, "backend": "eager", "text_raw": f"{number} {name}", "new_tokens": 9}],
                )
                writer.add(
                    "boxes", [{"page": name, "backend": "eager", "number": 0, "text": name, "x1": 1.0}]
                )
                writer.add("tokens", [{"page": name, "backend": "eager", "token_ids": [number, page]}])
            if number % 2:
                writer.add("kernels", [{"name": "gemm", "stage": "decode", "total_ns": float(number)}])
                writer.add("parity", [{"page": "p", "verdict": "differs", "reasons": ["a", "b"]}])
            (writer.directory / "viz" / "key").mkdir(parents=True)
            (writer.directory / "viz" / "key" / "result.mmd").write_text(f"of run {number}")


def answers(history: History) -> dict[str, pd.DataFrame]:
    values: dict[str, Any] = {
        "run_ids": [f"run-{number}" for number in range(RUNS)], "run_id": "run-1", "page": HOSTILE[1],
        "stage": "sam", "backend": "eager", "a": "run-0", "b": "run-1", "baseline": "run-0",
        "backend_a": "eager", "backend_b": "eager",
        "of_runs": ["run-1"], "pages": [HOSTILE[1]], "steps": [0], "host": "host-1", "preset": "small",
        "checkpoint": "data/mini",
    }  # fmt: skip
    found: dict[str, pd.DataFrame] = {}
    copy_all_tables(history)
    for name, query in QUERIES.items():
        needed = {key: values[key] for key, default in query.parameters.items() if default is REQUIRED}
        found[name] = history.query(name, **needed)[0]
    for table in ("images", "stage_timings", "boxes", "tokens", "kernels", "parity"):
        found[f"table {table}"] = history.sql(f"SELECT * FROM {table} ORDER BY ALL")
    return found


def same_answers(left: dict[str, pd.DataFrame], right: dict[str, pd.DataFrame]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        pd.testing.assert_frame_equal(left[name], right[name], obj=name)


def files_of(history: History, run_id: str) -> dict[str, bytes]:
    return {name: history.file(run_id, name).read_bytes() for name in history.file_names(run_id)}


@pytest.mark.parametrize("keep", [0, 2, 100])
def test_folding_runs_changes_no_answer(tmp_path: Path, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_PER_PACK", 3)
    monkeypatch.setattr(module, "_GROUP_ROWS", 10)
    write_runs(tmp_path)
    with History(tmp_path) as history, History(tmp_path) as witness:
        history.tag("run-1", "kept")
        witness.refresh()
        before = answers(history)
        tables = {run_id: history.tables(run_id) for run_id in history.run_ids()}
        files = {run_id: files_of(history, run_id) for run_id in history.run_ids()}
        assert set(files["run-3"]) == {"predictions.jsonl", "viz/key/result.mmd"}
        report = compact(history, keep)
        assert report.packed == max(RUNS - keep, 0)
        assert len(report.packs) == -(-report.packed // 3)
        assert len(LocalStorage(tmp_path).names("runs")) == min(keep, RUNS)
        # One that knew the loose runs, one that never did, and one that asks without a refresh.
        same_answers(answers(witness), before)
        witness.refresh()
        with History(tmp_path) as fresh:
            for reader in (history, witness, fresh):
                same_answers(answers(reader), before)
                assert {run_id: reader.tables(run_id) for run_id in reader.run_ids()} == tables
                assert {run_id: files_of(reader, run_id) for run_id in reader.run_ids()} == files
        assert compact(history, keep).packed == 0


def test_runs_that_come_in_a_pack_with_known_ones_come_once(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    with History(tmp_path) as witness:
        for number in range(3):
            LocalStorage(tmp_path).remove("runs", f"run-{number}")
        write_runs(tmp_path, RUNS)
        with History(tmp_path) as history:
            before = answers(history)
            compact(history, keep=0)
        assert witness.refresh() == RUNS - 3
        same_answers(answers(witness), before)


def test_a_crash_on_the_way_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        before = answers(history)
        # It stops after the pack is whole and two of the runs are gone.
        removed: list[str] = []

        def stop(self: LocalStorage, kind: str, name: str) -> None:
            if len(removed) == 2:
                raise KeyboardInterrupt
            removed.append(name)
            real(self, kind, name)  # type: ignore[arg-type]

        real = LocalStorage.remove
        monkeypatch.setattr(LocalStorage, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            compact(history, keep=0)
        monkeypatch.undo()
        with History(tmp_path) as fresh:
            assert len(fresh) == RUNS
            same_answers(answers(fresh), before)
        with History(tmp_path) as fresh:
            report = compact(fresh, keep=0)
            assert report.packs == [] and LocalStorage(tmp_path).names("runs") == set()
            same_answers(answers(fresh), before)


def test_a_pack_half_written_is_a_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path, 3)
    with History(tmp_path) as history:

        def fail(*_: object) -> None:
            raise OSError("no space")

        with monkeypatch.context() as patch:
            patch.setattr(module, "_link", fail)
            with pytest.raises(StorageError, match="could not be written"):
                compact(history, keep=0)
        assert LocalStorage(tmp_path).names("packs") == set() and len(History(tmp_path)) == 3
        assert len(history.leftovers()) == 1 and len(history.clear_leftovers()) == 1
        assert compact(history, keep=0).packed == 3


def test_the_trash_is_emptied_for_good(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history, History(tmp_path) as witness:
        compact(history, keep=2)
        kept = ["run-1", "run-3", "run-4", "run-5"]
        tables = {run_id: history.tables(run_id) for run_id in kept}
        history.trash(["run-0", "run-2", "run-6"])
        history.restore(["run-0"])
        history.trash(["run-0"])
        assert empty_trash(history).deleted == 3
        with History(tmp_path) as fresh:
            for reader in (history, witness, fresh):
                reader.refresh()
                assert reader.run_ids() == kept and reader.trashed() == []
                assert {run_id: reader.tables(run_id) for run_id in kept} == tables
                assert files_of(reader, "run-3")["viz/key/result.mmd"] == b"of run 3"
        assert not any("run-2" in path.name for path in tmp_path.rglob("*"))
        assert empty_trash(history).deleted == 0
        history.trash(kept)
        assert empty_trash(history).deleted == 4 and len(history) == 0
        assert LocalStorage(tmp_path).names("packs") == set()


def test_emptying_that_stops_half_way_shows_no_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        compact(history, keep=1)
        before = answers(history)
        history.trash(["run-2"])
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "remove", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                empty_trash(history)
    assert len(LocalStorage(tmp_path).names("packs")) == 2
    with History(tmp_path) as history:
        assert history.trashed() == ["run-2"]
        history.restore(["run-2"])
        found = answers(history)
        del before["annotations"], found["annotations"]
        same_answers(found, before)
        history.trash(["run-2"])
        assert empty_trash(history).deleted == 1 and len(history) == RUNS - 1
        assert len(LocalStorage(tmp_path).names("packs")) == 1


def test_annotations_fold_too(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history, History(tmp_path) as witness:
        for number in range(60):
            history.tag(f"run-{number % RUNS}", f"tag {number}")
        witness.refresh()
        history.tag("run-0", "tag 0", on=False)
        before = answers(history)
        assert compact(history, keep=100).annotations == 61
        assert len(LocalStorage(tmp_path).annotation_names()) == 1
        history.note("run-1", "after")
        compact(history, keep=100)
        history.note("run-1", "")
        with History(tmp_path) as fresh:
            for reader in (history, witness, fresh):
                reader.refresh()
                rows = reader.query("annotations", run_id="run-1")[0]
                assert rows["value"].tolist()[-2:] == ["after", ""] and len(rows) == 2 + 9
                found = answers(reader)
                found["annotations"] = found["annotations"].iloc[:-2].reset_index(drop=True)
                same_answers(found, before)


def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        compact(history, keep=3)
    [pack] = (tmp_path / "packs").iterdir()
    document = pack / "pack.json"
    content = document.read_text()
    for damage in ("", "{}", '{"runs": 3}', '{"runs": [{}]}', content[:100]):
        document.write_text(damage)
        with History(tmp_path) as history:
            assert len(history) == 3 and list(history.problems) == [f"packs/{pack.name}"]
    document.write_text(content)
    shutil.copyfile(pack / "readings.parquet", pack / "timings.parquet")
    with History(tmp_path) as history:
        assert len(history) == 3 and "timings" in history.problems[f"packs/{pack.name}"]
    assert len(json.loads(content)["runs"]) == 4


def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_runs(tmp_path / "local", 3)
    store, url = fsspec.filesystem("memory"), "memory://compact/history"
    try:
        store.put(str(tmp_path / "local" / "runs"), "/compact/history/runs", recursive=True)
        with History(tmp_path / "local") as local, History(url) as history:
            before = {run_id: local.tables(run_id) for run_id in local.run_ids()}
            assert compact(history, keep=1).packed == 2
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
            with History(url) as fresh:
                assert {run_id: fresh.tables(run_id) for run_id in fresh.run_ids()} == before
                assert files_of(fresh, "run-0")["viz/key/result.mmd"] == b"of run 0"
                fresh.trash(["run-0"])
                assert empty_trash(fresh).deleted == 1 and fresh.run_ids() == ["run-1", "run-2"]
                with pytest.raises(StorageError):
                    fresh.storage.directory("runs", "run-0")
    finally:
        store.rm("/compact", recursive=True)
