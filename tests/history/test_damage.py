"""A damaged file costs its run, or its runs of a pack, and nothing else; it is always named."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from dsocr_core.history.checksums import CHECKSUMS
from dsocr_core.history.compact import compact, empty_trash
from dsocr_core.history.exporters import export_runs
from dsocr_core.history.importers.detect import import_paths
from dsocr_core.history.store import History, HistoryError
from dsocr_core.history.writer import RunWriter
from tests.support.flat_tables import flat_tables
from tests.support.made_up_runs import record, timing

RUNS = ("run-0", "run-1", "run-2", "run-3", "run-4")


def write_runs(root: Path) -> None:
    """Five runs, each with texts, boxes and lists of numbers, so that every kind of column is there."""
    for number, name in enumerate(RUNS):
        with RunWriter(root, record(name, created=f"2026-01-0{number + 1}")) as run:
            pages = [f"page-{page}" for page in range(4)]
            run.add("stage_timings", [timing(page, "decode", number + 1.0) for page in pages])
            run.add("images", [{"page": page, "backend": "eager", "text_raw": page * 20} for page in pages])
            run.add(
                "boxes",
                [
                    {"page": page, "backend": "eager", "number": 0, "x1": 1.0, "text": "a box"}
                    for page in pages
                ],
            )
            run.add(
                "tokens", [{"page": page, "backend": "eager", "token_ids": list(range(50))} for page in pages]
            )


def mutate(file: Path, random: random.Random) -> str:
    """One damage of a file: a bit, a byte, a hole, a cut, a byte too many, or the file is gone."""
    content = bytearray(file.read_bytes())
    at = random.randrange(len(content))
    kind = random.choice(["bit", "bit", "byte", "zeros", "cut", "twice", "insert", "empty", "gone"])
    match kind:
        case "bit":
            content[at] ^= 1 << random.randrange(8)
        case "byte":
            content[at] = (content[at] + random.randrange(1, 256)) % 256
        case "zeros":
            end = min(at + random.randrange(1, 64), len(content))
            content[at:end] = bytes(end - at) if any(content[at:end]) else b"\xff" * (end - at)
        case "cut":
            del content[at:]
        case "twice":
            content *= 2
        case "insert":
            content.insert(at, random.randrange(256))
        case "empty":
            content.clear()
    if kind == "gone":
        file.unlink()
    else:
        file.write_bytes(content)
    return f"{kind} at {at} of {file.name}"


def answers(history: History) -> int:
    """Every kind of question about all that opens; returns how many runs answered."""
    run_ids = history.run_ids()
    history.query("stage_summary")
    for name in ("whole_pages", "boxes", "tokens"):
        frame = history.query(name, run_ids=run_ids)[0]
        assert set(frame["run_id"]) == set(run_ids)
    assert set(history.sql("SELECT run_id FROM images JOIN boxes USING (run_id, page)")["run_id"]) == set(
        run_ids
    )
    for run_id in run_ids:
        assert len(flat_tables(history, run_id)["tokens"]) == 4
    return len(run_ids)


def damage_and_look(root: Path, name: str, seed: int) -> None:
    """Mutate one file of a loose run, open, ask; put the file back."""
    chance = random.Random(seed)
    run = root / "runs" / name
    files = sorted(
        path for path in run.iterdir() if path.suffix in (".json", ".parquet") or path.name == CHECKSUMS
    )
    file = chance.choice(files)
    before = file.read_bytes()
    what = mutate(file, chance)
    try:
        with History(root) as history:
            assert sorted(history.run_ids()) == sorted({*RUNS} - {name}), what
            assert list(history.problems) == [f"runs/{name}"], what
            assert answers(history) == len(RUNS) - 1
    finally:
        file.write_bytes(before)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("five")
    write_runs(root)
    return root


@pytest.mark.parametrize("seed", range(16))
def test_a_mutated_run_is_named_and_every_other_opens(five: Path, seed: int) -> None:
    damage_and_look(five, RUNS[seed % len(RUNS)], seed)


@pytest.mark.slow
def test_400_mutations_are_named_and_every_other_run_opens(five: Path) -> None:
    for seed in range(400):
        damage_and_look(five, RUNS[seed % len(RUNS)], 1000 + seed)


def test_the_list_of_checksums_is_sha256sum_s(five: Path) -> None:
    run = five / "runs" / "run-0"
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], cwd=run, check=True)
    listed = {line.split("  ")[1] for line in (run / CHECKSUMS).read_text().splitlines()[:-1]}
    assert listed == {path.name for path in run.glob("*")} - {CHECKSUMS}


# --- runs without checksums -----------------------------------------------------------------------


def without_checksums(root: Path) -> None:
    """As earlier versions of the program wrote."""
    for document in root.glob("*/*/*.json"):
        data = json.loads(document.read_text())
        for run in data.get("runs", [data]):
            run.pop("checksums", None)
            run.pop("sha256", None)
        document.write_text(json.dumps(data))
    for file in root.glob(f"*/*/{CHECKSUMS}"):
        file.unlink()


@pytest.mark.parametrize("table", ["readings", "timings"])
def test_an_old_run_that_cannot_be_decoded_is_named(tmp_path: Path, table: str) -> None:
    write_runs(tmp_path)
    without_checksums(tmp_path)
    with History(tmp_path) as history:
        assert answers(history) == 5 and not history.problems
    file = tmp_path / "runs" / "run-2" / f"{table}.parquet"
    content = bytearray(file.read_bytes())
    content[4:40] = bytes(36)  # the first page's header: pyarrow and DuckDB read the footer all the same
    file.write_bytes(content)
    with History(tmp_path) as history:
        assert answers(history) == 4
        assert (
            list(history.problems) == ["runs/run-2"] and f"{table}.parquet" in history.problems["runs/run-2"]
        )


def test_old_runs_that_cannot_be_decoded_are_named_whichever_of_their_tables_it_is(tmp_path: Path) -> None:
    """Tables are read one after the other; a damage of one does not hide that of the next."""
    write_runs(tmp_path)
    without_checksums(tmp_path)
    damaged = {"run-1": "readings", "run-2": "timings"}
    for run_id, table in damaged.items():
        file = tmp_path / "runs" / run_id / f"{table}.parquet"
        content = bytearray(file.read_bytes())
        content[4:40] = bytes(36)
        file.write_bytes(content)
    with History(tmp_path) as history:
        assert answers(history) == 3
        assert set(history.problems) == {f"runs/{run_id}" for run_id in damaged}
        for run_id, table in damaged.items():
            assert f"{table}.parquet" in history.problems[f"runs/{run_id}"]


def test_an_old_run_with_rows_missing_is_named(tmp_path: Path) -> None:
    write_runs(tmp_path)
    without_checksums(tmp_path)
    shutil.copyfile(
        tmp_path / "runs" / "run-1" / "readings.parquet", tmp_path / "runs" / "run-2" / "readings.parquet"
    )
    with History(tmp_path) as history:
        assert answers(history) == 4 and "rows" in history.problems["runs/run-2"]


# --- packs ------------------------------------------------------------------------------------------


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack of run-0 to run-3, a row group a run; run-4 lies beside it."""
    monkeypatch.setattr("dsocr_core.history.compact._GROUP_ROWS", 1)
    write_runs(tmp_path)
    with History(tmp_path) as history:
        compact(history, keep=1)
    [found] = (tmp_path / "packs").iterdir()
    return found


def test_a_damage_of_a_pack_costs_the_runs_whose_rows_it_hit(pack: Path) -> None:
    root = pack.parent.parent
    content = bytearray((pack / "readings.parquet").read_bytes())
    content[4:40] = bytes(36)
    (pack / "readings.parquet").write_bytes(content)
    with History(root) as history:
        assert history.run_ids() == ["run-1", "run-2", "run-3", "run-4"] and answers(history) == 4
        [(name, reason)] = history.problems.items()
        assert (
            name == f"packs/{pack.name}" and "readings.parquet" in reason and reason.endswith("read: run-0")
        )
        # What is damaged stays as it is until somebody asks for more.
        history.trash(["run-1"])
        assert empty_trash(history).deleted == 0
        history.trash([name])
        assert not history.problems
        assert empty_trash(history).deleted == 2
        assert history.run_ids() == ["run-2", "run-3", "run-4"] and answers(history) == 3
    with History(root) as history:
        assert answers(history) == 3 and not history.problems


def test_a_damaged_line_of_a_pack_costs_that_run(pack: Path) -> None:
    document = pack / "pack.json"
    content = document.read_text()
    for old, new in (
        ('"id": "run-2"', '"id": "run_2"'),
        ('"id": "run-2"', '"id": "run-2'),
        ('"runs"', '"ruNs"'),
    ):
        document.write_text(content.replace(old, new, 1))
        with History(pack.parent.parent) as history:
            lost = [] if "runs" in old else ["run-2"]
            assert history.run_ids() == [name for name in RUNS if name not in lost]
            assert answers(history) == 5 - len(lost)
            assert list(history.problems) == [f"packs/{pack.name}"]


def test_a_run_that_still_lies_beside_its_damaged_pack_is_read_from_there(pack: Path, tmp_path: Path) -> None:
    write_runs(tmp_path / "again")
    shutil.copytree(tmp_path / "again" / "runs" / "run-0", pack.parent.parent / "runs" / "run-0")
    file = pack / "readings.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    with History(pack.parent.parent) as history:
        assert history.run_ids() == ["run-0", "run-4"] and answers(history) == 2
        compact(history, keep=5)  # what its pack cannot give is not taken away
        assert history.run_ids() == ["run-0", "run-4"]


# --- later, and back ------------------------------------------------------------------------------


def test_a_run_damaged_while_the_history_is_open_is_left_out_of_the_next_answer(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        file = tmp_path / "runs" / "run-3" / "readings.parquet"
        file.write_bytes(file.read_bytes()[:100])
        frame = history.query("tokens", run_ids=list(RUNS))[0]
        assert set(frame["run_id"]) == {*RUNS} - {"run-3"} and list(history.problems) == ["runs/run-3"]
        with pytest.raises(HistoryError, match=r"run run-3 is damaged: readings.parquet: .*history check"):
            history.record("run-3")


def test_a_damaged_run_goes_to_the_trash_and_comes_back_from_an_export(tmp_path: Path) -> None:
    write_runs(tmp_path / "h")
    with History(tmp_path / "h") as history:
        export_runs(history, ["run-1", "run-2"], tmp_path / "two.zip", "zip")
    for name in ("run-1", "run-2"):
        (tmp_path / "h" / "runs" / name / "readings.parquet").write_bytes(b"PAR1")
    with History(tmp_path / "h") as history:
        assert sorted(history.problems) == ["runs/run-1", "runs/run-2"]
        history.trash(["run-1"])
        assert list(history.problems) == ["runs/run-2"] and history.trashed() == ["run-1"]
        assert empty_trash(history).deleted == 1 and "run-1" not in history.damaged()
        report = import_paths(history, [tmp_path / "two.zip"])
        assert [run.run_id for run in report.imported] == ["run-1", "run-2"]
        assert not history.problems and history.refresh() == 0
        history.restore(["run-1"])
        assert answers(history) == 5


def test_a_repaired_file_is_taken_without_a_restart(tmp_path: Path) -> None:
    write_runs(tmp_path)
    file = tmp_path / "runs" / "run-1" / "readings.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with History(tmp_path) as history:
        assert len(history) == 4 and history.refresh() == 0
        file.write_bytes(content)
        assert history.refresh() == 1 and not history.problems and answers(history) == 5


def test_a_changed_annotation_is_named(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        history.note("run-1", "fine")
        history.tag("run-1", "baseline")
    file = next(path for path in (tmp_path / "annotations").iterdir() if b"fine" in path.read_bytes())
    file.write_bytes(file.read_bytes().replace(b"fine", b"fire"))
    with History(tmp_path) as history:
        assert list(history.problems) == [f"annotations/{file.name}"]
        run = history.runs().set_index("run_id").loc["run-1"]
        assert list(run["tags"]) == ["baseline"] and not isinstance(run["note"], str)
