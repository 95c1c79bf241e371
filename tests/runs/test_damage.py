"""A damaged file costs its run, or its runs of a pack, and nothing else; it is always named."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsocr_core.cli.main import main
from dsocr_core.runs.checksums import CHECKSUMS
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.record import SCHEMA_VERSION
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.storage import StorageError
from tests.support.flat_tables import flat_tables
from tests.support.made_up_runs import record, timing

RUNS = ("run-0", "run-1", "run-2", "run-3", "run-4")


def write_runs(root: Path) -> None:
    """Five runs, each with texts, boxes and lists of numbers, so that every kind of column is there."""
    for number, name in enumerate(RUNS):
        with RunDirectory.create(root, record(name, created=f"2026-01-0{number + 1}")) as run:
            pages = [f"page-{page}" for page in range(4)]
            run.add_rows("stage_timings", [timing(page, "decode", number + 1.0) for page in pages])
            boxes = [{"number": 0, "x1": 1.0, "text": "a box"}]
            row = {"backend": "eager", "token_ids": list(range(50)), "boxes": boxes}
            run.add_rows("readings", [{"page": page, "text_raw": page * 20, **row} for page in pages])


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
    assert set(history.sql("SELECT run_id FROM images JOIN boxes USING (run_id, page)")["run_id"]) == set(
        run_ids
    )
    for run_id in run_ids:
        assert len(flat_tables(history, run_id)["readings"]) == 4
    return len(run_ids)


def damage_and_look(root: Path, seeds: Sequence[int]) -> None:
    """Mutate a file of the first runs, one a seed, open, ask; put the files back."""
    before, what = dict[Path, bytes](), []
    for name, chance in zip(RUNS, map(random.Random, seeds), strict=False):
        run = root / "runs" / name
        file = chance.choice(sorted([*run.glob("*.json"), *run.glob("*.parquet"), run / CHECKSUMS]))
        before[file] = file.read_bytes()
        what.append(mutate(file, chance))
    damaged = RUNS[: len(seeds)]
    try:
        with History(root) as history:
            assert sorted(history.run_ids()) == sorted({*RUNS} - {*damaged}), what
            assert sorted(history.problems) == [f"runs/{name}" for name in damaged], what
            assert answers(history) == len(RUNS) - len(seeds)
    finally:
        for file, content in before.items():
            file.write_bytes(content)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("five")
    write_runs(root)
    return root


@pytest.mark.parametrize("seeds", [range(4), range(4, 7), range(7, 8)], ids=len)
def test_mutated_runs_are_named_and_every_other_opens(five: Path, seeds: range) -> None:
    damage_and_look(five, seeds)


@pytest.mark.slow
def test_400_mutations_are_named_and_every_other_run_opens(five: Path) -> None:
    for seed in range(1000, 1400, 2):
        damage_and_look(five, (seed, seed + 1))


def test_the_list_of_checksums_is_sha256sum_s(five: Path) -> None:
    run = five / "runs" / "run-0"
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], cwd=run, check=True)
    listed = {line.split("  ")[1] for line in (run / CHECKSUMS).read_text().splitlines()[:-1]}
    assert listed == {path.name for path in run.glob("*")} - {CHECKSUMS}


# --- later, and back ------------------------------------------------------------------------------


def test_a_run_damaged_while_the_history_is_open_is_left_out_of_the_next_answer(tmp_path: Path) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        file = tmp_path / "runs" / "run-3" / "readings.parquet"
        file.write_bytes(file.read_bytes()[:100])
        sides = {"a": "run-1", "b": "run-3", "backend_a": "eager", "backend_b": "eager"}
        assert set(history.query("coverage", **sides)[0]["outcome"]) == {"not in B"}
        assert list(history.problems) == ["runs/run-3"]
        with pytest.raises(HistoryError, match=r"run run-3 is damaged: readings.parquet: .*history check"):
            history.record("run-3")


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


def test_a_run_of_a_later_version_is_no_damage_and_is_never_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path)
    file = tmp_path / "runs" / "run-0" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": SCHEMA_VERSION + 1}))
    place = ("--history", str(tmp_path))
    assert main(["history", "check", "--trash", *place]) == 0
    assert "not read  runs/run-0" in capsys.readouterr().out
    assert main(["history", "trash", "run-0", *place]) == 0  # as a person asked
    assert main(["history", "trash", "--empty", *place]) == 0
    assert file.is_file()
    with History(tmp_path) as history, pytest.raises(StorageError), history.writer(record("run-0")) as run:
        run.add_rows("stage_timings", [timing("p", "decode", 1.0)])
    assert json.loads(file.read_text())["schema_version"] == SCHEMA_VERSION + 1


@pytest.mark.parametrize("kind", ["dangling link", "file"])
def test_a_run_whose_folder_cannot_be_listed_is_named_and_can_be_deleted(tmp_path: Path, kind: str) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        history.tag("run-1", "kept")
        strange = tmp_path / "runs" / "strange"
        if kind == "file":
            strange.write_text("words")
        else:
            strange.symlink_to(tmp_path / "nowhere")
        history.refresh()
        assert "its folder cannot be listed" in history.problems["runs/strange"]
        with RunDirectory.create(tmp_path, record("another")) as run:
            run.add_rows("stage_timings", [timing("p", "decode", 1.0)])
        history.refresh()  # what comes later is seen beside it
        assert "another" in history
        assert history.runs(tags=["kept"])["run_id"].tolist() == ["run-1"]
        history.trash(["strange"])
        assert history.empty_trash() == 1
        assert not history.problems and not list((tmp_path / "unfinished").iterdir())


def test_a_link_in_the_place_of_all_runs_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="runs: not a folder"):
        History(tmp_path)


@pytest.mark.parametrize("whole", [True, False])
def test_an_index_that_is_damaged_while_it_is_open_is_made_anew_for_sql(tmp_path: Path, whole: bool) -> None:
    write_runs(tmp_path)
    with History(tmp_path) as history:
        file = history._made.path
        content = bytearray(file.read_bytes())
        first = 0 if whole else 3 * 4096  # behind the headers: one block fails its checksum
        content[first:] = bytes(byte ^ 0xFF for byte in content[first:])
        with file.open("r+b") as handle:
            handle.write(content)
        assert history.sql("SELECT count(*) AS n FROM stage_timings")["n"].tolist() == [20]
