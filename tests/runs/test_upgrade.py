"""Runs and packs of earlier versions are taken over once, whole, whenever it is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dsocr_core.reading.artifacts import PREDICTIONS, Export
from dsocr_core.reading.records import OcrResult, to_jsonable
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.exporters import flat
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE
from dsocr_core.runs.result_cache import RecordedResult, ResultStore
from dsocr_core.runs.results import readings_in
from dsocr_core.runs.store import History
from dsocr_core.runs.upgrade.upgrade import EARLIER, Upgraded, upgrade, upgrade_any, upgrade_url
from tests.support.made_up_runs import record
from tests.support.results import make_result

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
        assert history.problems.keys() == {"runs/a", "runs/b", "packs/pack-1"}
        assert all("dsocr history upgrade" in reason for reason in history.problems.values())


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


def test_what_is_not_as_its_checksums_say_stays_and_is_named(tmp_path: Path) -> None:
    old_history(tmp_path)
    names = {"runs/a": "images.parquet", "runs/b": "SHA256SUMS", "packs/pack-1": "files/c/viz/note.txt"}
    whole, damaged = dict[Path, bytes](), dict[Path, bytes]()
    for entry, name in names.items():
        write_checksums(tmp_path / entry)
        file = tmp_path / entry / name
        content = whole[file] = file.read_bytes()
        # A digit of a document, a byte of a picture: it can be read as well as before.
        damaged[file] = content.replace(b"1", b"2", 1) if b"1" in content else content + b" "
        file.write_bytes(damaged[file])
    done = upgrade(tmp_path)
    assert done.runs == 0 and done.failed.keys() == names.keys()
    assert all(done.failed[entry].startswith(f"{name}: damaged") for entry, name in names.items())
    for file, content in whole.items():
        assert file.read_bytes() == damaged[file]
        file.write_bytes(content)
    gone = tmp_path / "runs" / "b" / "images.parquet"
    gone.rename(tmp_path / "aside")
    done = upgrade(tmp_path)
    assert done.runs == 3 and done.failed == {"runs/b": "images.parquet: missing"}
    (tmp_path / "aside").rename(gone)
    upgrade(tmp_path)
    check(tmp_path)


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


def kill_at_every(
    steps: range, old: Path, check: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """End an upgrade at each of these steps, and look at what the next one makes of it."""
    pa.set_cpu_count(1)
    for step in steps:
        root = old.with_name("tried")
        shutil.copytree(old, root)
        child = os.fork()
        if child == 0:
            dies_at(step, monkeypatch)
            upgrade_any(root)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        upgrade_any(root)
        check(root)
        shutil.rmtree(root)
        if ended == 0:
            break
    assert ended == 0 and step > steps[2]


def test_killed_at_any_step_the_next_call_makes_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_history(tmp_path / "old")
    kill_at_every(range(1, 400, 19), tmp_path / "old", check, monkeypatch)


def test_a_history_by_its_url_is_taken_over_whenever_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_history(tmp_path / "old")
    store = fsspec.filesystem("memory")
    calls = [0]
    for last in (2, 42, 10**6):
        store.store.clear()
        store.pseudo_dirs[:] = [""]
        store.put(str(tmp_path / "old"), "/old", recursive=True)
        with monkeypatch.context() as patch:
            for name in ("cp_file", "rm_file", "put_file"):
                patch.setattr(type(store), name, stopped(getattr(type(store), name), calls, last))
            calls[0] = 0
            with contextlib.suppress(Stopped):
                assert upgrade_url("memory://old").runs == 4
        found = upgrade_url("memory://old")
        assert found.failed == {} and found.runs < 4 + (last < 10**6)
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        store.get("/old", str(tmp_path / "new"), recursive=True)
        check(tmp_path / "new")
    assert calls[0] > 60


class Stopped(Exception):
    pass


def stopped(real: Callable[..., Any], calls: list[int], last: int) -> Callable[..., Any]:
    """A call of a store that raises from the n-th on."""

    def call(*given: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] > last:
            raise Stopped
        return real(*given, **options)

    return call


# --- run directories and the result cache -----------------------------------------------------------

PAGE = "page.png"


def read_by(backend: str) -> OcrResult:
    text = f"<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# Hello\ud800 {backend}"
    result = make_result(text, backend, image=Path("/scans") / PAGE, image_size=(200, 100))
    return replace(result, environment={"engine": "fast" if backend == "fast" else "published"})


def old_directory(root: Path, ours: str = "fast", whole: bool = True) -> None:
    """What `compare --out` left; without whole results before 0.1.0."""
    export = Export(root, "run-1", "fast")
    for result in (read_by("fast"), read_by("vendor")):
        name = ours if result.backend == "fast" else "vendor"
        export.add(result, [Image.new("RGB", (200, 100))], "key")
        folder, lines = export.folder(result.backend, result.request.image), root
        lines = root / ("vendor" if name == "vendor" else "")
        [line] = map(json.loads, (lines / PREDICTIONS).open())
        line["backend"] = name
        if whole:
            document = to_jsonable(result) | {"backend": name}
            (folder / "result.json").write_text(json.dumps(document))
        else:
            line = {key: value for key, value in line.items() if key not in ("run", "key", "sha256", "bytes")}
        (lines / PREDICTIONS).write_text(json.dumps(line) + "\n")
    export.add_failure("fast", "gone.png", None, "no such file")
    if whole:
        made = record("run-1", command="dsocr compare", backends=("fast", "vendor"))
        document = made.to_json() | {"schema_version": 2}
        (root / "records").mkdir()
        (root / "records" / "run-1.json").write_text(json.dumps(document))


def check_directory(root: Path) -> None:
    run = readings_in(root)
    assert run.results == {(PAGE, name): read_by(name) for name in ("fast", "vendor")}
    assert run.failures == {("gone.png", "fast"): "no such file"}
    document = json.loads((root / "run.json").read_text())
    assert (document["id"], document["command"]) == ("run-1", "dsocr compare")
    assert not [*root.rglob("result.json"), *root.rglob("records"), *root.glob(".*")]
    with History(root.with_name("elsewhere")) as history:
        report = import_paths(history, [root])
        assert report.skipped == [] and [run.run_id for run in report.imported] == ["run-1"]
        [parity] = history.tables("run-1")["parity"].to_pylist()
        assert (parity["page"], parity["verdict"]) == (PAGE, "differs")
    shutil.rmtree(root.with_name("elsewhere"))


@pytest.mark.parametrize("ours", ["fast", "ours"])
def test_a_run_directory_becomes_a_run_in_place(tmp_path: Path, ours: str) -> None:
    old_directory(tmp_path / "out", ours)
    with History(tmp_path / "before") as history:
        [skipped] = import_paths(history, [tmp_path / "out"]).skipped
        assert "dsocr history upgrade takes it over" in skipped.reason
    assert upgrade_any(tmp_path / "out") == Upgraded(runs=1)
    check_directory(tmp_path / "out")
    assert upgrade_any(tmp_path / "out") == Upgraded()


def test_a_run_directory_killed_at_any_step_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_directory(tmp_path / "old")
    kill_at_every(range(1, 60, 3), tmp_path / "old", check_directory, monkeypatch)


def test_lines_without_results_give_what_they_say(tmp_path: Path) -> None:
    old_directory(tmp_path, whole=False)
    with (tmp_path / PREDICTIONS).open("a") as handle:
        handle.write('{"image": "a.png"}\n{"image": "half')
    done = upgrade_any(tmp_path)
    assert [*done.failed] == [f"{PREDICTIONS} line 3", f"{PREDICTIONS} line 4"]
    run = readings_in(tmp_path)
    given, found = read_by("fast"), run.results[PAGE, "fast"]
    assert found.text_raw == given.text_raw.replace("\ud800", "?")
    assert (found.image_size, found.timings, found.token_ids) == ((200, 100), given.timings, None)
    assert [box.label for box in found.boxes] == ["title"]
    document = json.loads((tmp_path / "run.json").read_text())
    assert (document["engine"], document["notes"]) == ("fast", FILE_TIME_NOTE)


def test_entries_of_a_result_cache_are_taken_over(tmp_path: Path) -> None:
    keys = {"a" * 32: "road", "b" * 32: "backend"}
    for key, name in keys.items():
        result = to_jsonable(read_by("fast"))
        del result["backend"]
        entry = {"format": 1, "created": "2026-11-21", "result": result | {name: "ours"}}
        (tmp_path / f"{key}.json").write_text(json.dumps(entry))
    (tmp_path / f"{'c' * 32}.json").write_text("{")
    done = upgrade_any(tmp_path)
    assert (done.results, [*done.failed]) == (2, [f"{'c' * 32}.json"])
    store = ResultStore(tmp_path)
    assert [store.find(key) for key in keys] == [RecordedResult(read_by("fast"), "2026-11-21")] * 2
    assert upgrade_any(tmp_path).results == 0
