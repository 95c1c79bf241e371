"""A kill, a full disk and a read-only one, at every write of a run directory and of the result cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.outputs.artifacts import INFO, PREDICTIONS, RunDirectory, page_key
from dsocr_core.outputs.result_store import ResultStore
from tests.support import directory_writes
from tests.support.write_faults import FAULTS, Fault, Faults, sample, unavailable

WHY_NOT = unavailable()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

BASES: dict[str, Callable[[Path], None]] = {
    "read": directory_writes.base,
    "read_again": directory_writes.base_read,
    "fail_again": directory_writes.base_read,
}
Page = tuple[Any, ...]


def pages(root: Path) -> dict[str, Page]:
    """What the directory says of each page: its line, and the files of its folder."""
    found = {}
    for line in (root / "out" / PREDICTIONS).read_bytes().splitlines():
        data = json.loads(line)
        folder = root / "out" / "viz" / page_key(Path(data["image"]))
        info = json.loads((folder / INFO).read_bytes())
        assert info.get("text_raw") == data.get("text_raw") and info.get("error") == data.get("error")
        if "error" not in data:
            assert json.loads((folder / INFO).read_bytes())["text_raw"] == data["text_raw"]
        files = sorted(path.name for path in folder.rglob("*"))
        found[Path(data["image"]).name] = (data.get("text_raw"), data.get("error"), data.get("key"), files)
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
        if (root / "out").exists():
            RunDirectory(root / "out").repair(["eager"])
        hidden = [path for path in root.rglob(".*") if path.name != ".lock"]
        assert not hidden, what
        found = pages(root) if (root / "out" / PREDICTIONS).exists() else {}
        assert self.before.keys() <= found.keys() <= self.after.keys(), what
        for name, page in found.items():
            assert page in (self.before.get(name), self.after[name]), f"{what}: {name} {page}"
        folders = {path.name for path in (root / "out" / "viz").glob("*")}
        assert {page_key(root / name) for name in found} <= folders, what
        again = self._faults.run(self.job, root)
        assert again.end == "done" and pages(root) == self.after, f"{what}; then {again.text}"


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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_result_in_the_cache_is_whole_or_the_earlier_one(
    faults: Faults, tmp_path: Path, fault: Fault
) -> None:
    for at in range(len(faults.run("cache", tmp_path / "whole").writes)):
        root = tmp_path / f"cache-{at}"
        ended = faults.run("cache", root, fault, at)
        assert ended.end in (("killed",) if fault == "kill" else ("refused", "done"))
        assert "\n" not in ended.text
        files = list((root / "out").glob("*.json")) if root.exists() else []
        found = ResultStore(root / "out").find("key")
        assert (found is not None) == bool(files)
        assert found is None or found.result.text_raw in ("first", "second")
        assert fault != "full" or not list(root.glob("out/*.part"))
