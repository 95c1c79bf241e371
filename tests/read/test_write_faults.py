"""A kill, a full disk and a read-only one, at every write of a run directory and of the result cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dsocr_core.reading.artifacts import INFO, PREDICTIONS, page_key
from dsocr_core.runs.checksums import read_checksums, verify
from dsocr_core.runs.result_cache import ResultStore
from tests.support import directory_writes
from tests.support.write_faults import DISKS, FAULTS, Fault, Faults, sample, unavailable

WHY_NOT = unavailable()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

BASES: dict[str, Callable[[Path], None]] = {
    "read": directory_writes.base,
    "read_again": directory_writes.base_read,
    "fail_again": directory_writes.base_read,
}
Page = tuple[Any, ...]


def pages(root: Path) -> dict[str, Page]:
    """What the run says of each page, held against its line and the files of its folder."""
    run = root / "out"
    lines = {line["source"]: line for line in map(json.loads, (run / PREDICTIONS).open())}
    rows = pq.read_table(run / "readings.parquet").to_pylist()
    assert lines.keys() == {row["page"] for row in rows} and len(lines) == len(rows)
    document = json.loads((run / "run.json").read_text())
    checksums = read_checksums(run)
    assert checksums is not None and document["tables"]["readings"] == len(rows)
    verify(run, checksums, checksums)
    found = {}
    for row in rows:
        line, folder = lines[row["page"]], run / "viz" / page_key(root / row["page"])
        info = json.loads((folder / INFO).read_bytes())
        assert row["text_raw"] == line.get("text_raw") == info.get("text_raw")
        assert row["error"] == line.get("error") == info.get("error")
        assert row["run_id"] == line["run"] == document["id"]
        files = sorted(path.name for path in folder.rglob("*"))
        found[row["page"]] = (row["text_raw"], row["error"], row["key"], files)
    return found


class Bench:
    """A job, what it is done on, and what the directory says before and after it."""

    def __init__(self, faults: Faults, root: Path, job: str) -> None:
        self._faults, self._root, self.job = faults, root, job
        (root / "tried").mkdir(parents=True)
        BASES[job](root / "tried")
        (root / "tried").rename(root / "base")
        ended = faults.run(job, self._copy())
        assert ended.end == "done", ended.text
        self.writes = ended.writes
        self.after = pages(root / "tried")
        self.before = pages(self._copy()) if job != "read" else {}

    def _copy(self) -> Path:
        """Always under one name, which is part of what is written."""
        target = self._root / "tried"
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(self._root / "base", target))

    def look(self, fault: Fault, at: int) -> None:
        root = self._copy()
        ended = self._faults.run(self.job, root, fault, at)
        what = f"{self.job}, {fault} at {at} ({ended.writes[at : at + 1]}): {ended.end} {ended.text}"
        assert ended.end in (("killed", "done") if fault == "kill" else ("refused", "done")), what
        assert "\n" not in ended.text and "None" not in ended.text, what
        found = {(name, key) for _, name, key in done_in(root, self._root / "looked at")}
        before, after = ({(name, page[2]) for name, page in of.items()} for of in (self.before, self.after))
        # Nothing that was finished is lost: all but the page that is being read again is there.
        assert {pair for pair in before if pair[0] != directory_writes.PAGES[0]} <= found, what
        assert found <= before | after, what
        again = self._faults.run(self.job, root)
        assert again.end == "done" and pages(root) == self.after, f"{what}; then {again.text}"
        hidden = [path for path in (root / "out").rglob(".*") if path.name != ".lock"]
        assert not hidden, what


def done_in(root: Path, copy: Path) -> set[tuple[str, str, str]]:
    """What the next writer finds; it finds it in a copy, for it ends the run."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    if not (copy / "out").exists():
        return set()
    with directory_writes.opened(copy) as directory:
        return directory.done()


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with Faults("directory_writes") as started:
        yield started


@pytest.fixture(scope="module", params=BASES)
def bench(request: pytest.FixtureRequest, faults: Faults, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(faults, tmp_path_factory.mktemp(request.param), request.param)


def test_a_fault_loses_no_page(bench: Bench) -> None:
    """At a few writes of each job; the slow test has all."""
    for fault, at in sample(bench.job, list(BASES).index(bench.job), bench.writes, ("temporary",)):
        bench.look(fault, at)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_write_loses_no_page(bench: Bench, fault: Fault) -> None:
    for at in range(len(bench.writes)):
        bench.look(fault, at)


def test_a_result_in_the_cache_is_whole_or_the_earlier_one(faults: Faults, tmp_path: Path) -> None:
    """A kill at every write, and one of the two disks at every third."""
    writes = range(len(faults.run("cache", tmp_path / "whole").writes))
    for at, fault in [*((at, "kill") for at in writes), *((at, DISKS[at % 2]) for at in writes[::3])]:
        root = tmp_path / f"{fault}-{at}"
        ended = faults.run("cache", root, fault, at)
        assert ended.end in (("killed",) if fault == "kill" else ("refused", "done"))
        assert "\n" not in ended.text
        files = list((root / "out").glob("*.parquet")) if root.exists() else []
        found = ResultStore(root / "out").find("key")
        assert (found is not None) == bool(files)
        assert found is None or found.result.text_raw in ("first", "second")
        assert fault != "full" or not list(root.glob("out/.part-*"))
