"""A kill, a full disk and a read-only one, at every write: nothing saved is lost or seen in part."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.runs.annotations import read_annotation_files
from dsocr_core.runs.store import History
from tests.support import history_writes
from tests.support.write_faults import FAULTS, Fault, Faults, sample, unavailable

WHY_NOT = unavailable()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

BASES: dict[str, Callable[[Path], None]] = {
    "write": history_writes.base,
    "read_in": history_writes.base,
    "export": history_writes.base,
    "annotate": history_writes.base_noted,
    "delete": history_writes.base_trashed,
}
"""Each job, and what it is done on."""
HIDDEN = ("temporary", "history/unfinished")
"""What no reader looks at."""


@dataclass
class Seen:
    """All that somebody finds in a history."""

    runs: dict[str, Any]
    notes: list[tuple[Any, ...]]


def seen(root: Path) -> Seen:
    with History(root / "history") as history:
        return _seen(history)


def _seen(history: History) -> Seen:
    assert not history.problems, history.problems
    runs = {
        run_id: (
            history.record(run_id),
            {name: table.to_pylist() for name, table in history.tables(run_id).items()},
            {name: history.file(run_id, name).read_bytes() for name in history.file_names(run_id)},
        )
        for run_id in history.run_ids()
    }
    files = [(0, name) for name in history.storage.annotation_versions()]
    rows = read_annotation_files([history.storage], files, files)[0]
    rows.sort(key=lambda row: row["position"])
    return Seen(runs, [(row["kind"], row["page"], row["value"]) for row in rows])


def exported(root: Path) -> dict[str, str] | None:
    """The files in an export; None where there is none."""
    target = root / "exported"
    if not target.is_file():
        return None
    with zipfile.ZipFile(target) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


class Bench:
    """A job, what it is done on, and what there is to see before and after it."""

    def __init__(self, faults: Faults, root: Path, job: str) -> None:
        self._faults, self._root, self.job = faults, root, job
        shutil.copytree(_base(BASES[job], root.parent), root / "base")
        self.before = seen(root / "base")
        done = self._copy("done")
        ended = faults.run(job, done)
        assert ended.end == "done", ended.text
        self.writes = ended.writes
        self.after, self.exported = seen(done), exported(done)
        self._checked: set[str] = set()

    def _copy(self, name: str) -> Path:
        target = self._root / name
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(self._root / "base", target, symlinks=True))

    def look(self, fault: Fault, at: int) -> None:
        """Let the fault happen, and look at what it left; then do the job again, without."""
        root = self._copy("tried")
        ended = self._faults.run(self.job, root, fault, at)
        what = f"{self.job}, {fault} at {at} ({ended.writes[at : at + 1]}): {ended.end} {ended.text}"
        assert ended.end in (("killed", "done") if fault == "kill" else ("refused", "done")), what
        assert "\n" not in ended.text and "None" not in ended.text, what
        assert fault != "full" or not any(root.glob(".part-*")), what
        state = _state(root)
        if state in self._checked and ended.end != "done":
            return
        self._checked.add(state)
        with History(root / "history") as history:
            found = _seen(history)
            self._check(found, what)
            assert exported(root) in (None, self.exported), what
            if ended.end == "done":
                assert (found, exported(root)) == (self.after, self.exported), what
            history.storage.leftovers(clear=True)
            assert not any((root / "history" / "unfinished").glob("*")), what
        if found.runs == self.after.runs and self.job == "write":
            return  # a run is written once
        if exported(root) is None:
            again = self._faults.run(self.job, root)
            assert again.end == "done", f"{what}; then {again.text}"
            assert (seen(root).runs, exported(root)) == (self.after.runs, self.exported), what

    def _check(self, found: Seen, what: str) -> None:
        before, after = self.before.runs, self.after.runs
        assert before.keys() & after.keys() <= found.runs.keys() <= before.keys() | after.keys(), what
        for run_id, content in found.runs.items():
            assert content in (before.get(run_id), after.get(run_id)), f"{what}: {run_id}"
        assert found.notes in (self.before.notes, self.after.notes), what


def _base(make: Callable[[Path], None], folder: Path) -> Path:
    """What jobs are done on, made once for all of them."""
    base = folder / make.__name__
    if not base.exists():
        base.mkdir()
        make(base)
    return base


def _state(root: Path) -> str:
    """What a reader finds, to look at it once."""
    state = hashlib.sha256()
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if not name.startswith(HIDDEN):
            state.update(f"{name} {file.stat().st_size if file.is_file() else ''}\n".encode())
    return state.hexdigest()


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with Faults("history_writes") as started:
        yield started


@pytest.fixture(scope="module", params=BASES)
def bench(request: pytest.FixtureRequest, faults: Faults, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(faults, tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("bench", BASES, indirect=True)
def test_a_fault_loses_nothing(bench: Bench) -> None:
    """At a few writes of each job; the slow test has all."""
    for fault, at in sample(bench.job, list(BASES).index(bench.job), bench.writes, HIDDEN):
        bench.look(fault, at)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_write_loses_nothing(bench: Bench, fault: Fault) -> None:
    for at in range(len(bench.writes)):
        bench.look(fault, at)
