"""A disk that fails from any sync, link or rename on: what was saved stays, and the job can be done again."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.export import export_runs
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.result_cache import find_result, save_results
from tests.support import directory_writes
from tests.support.made_up_runs import timing, write_run
from tests.support.results import make_result


def base(root: Path) -> None:
    """A run with a note, one in the trash, one in a zip, a run directory and a result in the cache."""
    directory_writes.read(root)
    for place, name in (("history", "old"), ("history", "trashed"), ("elsewhere", "new")):
        write_run(root / place, name, [timing("p", "decode", 1.0)])
    with History(root / "elsewhere") as other:
        export_runs(other, ["new"], root / "new.zip")
    with History(root / "history") as history:
        history.note("old", "a note")
        history.trash(["trashed"])
    cache(root, "first")


def cache(root: Path, text: str) -> None:
    save_results(root / "cache", "key", {"key": make_result(text, image=Path("a.png"))})


def read_in(history: History, root: Path) -> None:
    for skipped in import_paths(history, [root / "new.zip"]).skipped:
        raise DsocrError(skipped.reason)


JOBS: dict[str, Callable[[History, Path], object]] = {
    "write": lambda _, root: write_run(root / "history", "new", [timing("p", "decode", 1.0)]),
    "import": read_in,
    "export": lambda history, root: export_runs(history, ["old"], root / "exported.zip"),
    "annotate": lambda history, _: history.annotate("old", "verdict", [("p", "a", "good")]),
    "delete": lambda history, _: history.empty_trash(),
    "read again": lambda _, root: directory_writes.read(root, "second", directory_writes.PAGES[:1]),
    "cache": lambda _, root: cache(root, "second"),
}


def do(job: str, root: Path) -> None:
    with History(root / "history") as history:
        JOBS[job](history, root)


def seen(root: Path) -> list[Any]:
    """What a reader finds in each place."""
    with History(root / "history") as history:
        assert not history.problems
        tables = {run_id: (history.record(run_id), history.tables(run_id)) for run_id in history.run_ids()}
        notes = [history.storage.annotation(name) for name in history.storage.annotation_versions()]
        trashed = list(history.trashed())
    archives = [(file.name, zipfile.ZipFile(file).namelist()) for file in root.glob("exported.zip")]
    with directory_writes.opened(root) as directory:
        done = directory.done()
    cached = find_result("key", [root / "cache" / "runs" / "key"])
    return [tables, len(notes), trashed, archives, done, cached and cached.result.text_raw]


def fail_from(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let that call, and each after it, fail; returns a list that they are written into."""
    calls: list[str] = []

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) > number:
                raise OSError(28, "No space left on device")
            return call(*given, **named)

        return called

    for owner, name in ((os, "fsync"), (os, "link"), (Path, "rename"), (Path, "replace")):
        patch.setattr(owner, name, failing(name, getattr(owner, name)))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_failing_disk_loses_nothing(job: str, tmp_path: Path) -> None:
    base(tmp_path / "base")
    before, root = seen(tmp_path / "base"), tmp_path / "tried"
    shutil.copytree(tmp_path / "base", root)
    with pytest.MonkeyPatch.context() as patch:
        calls = fail_from(patch, 10**6)
        do(job, root)
    after = seen(root)
    assert calls and after != before
    for number in range(len(calls)):
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "base", root)
        with pytest.MonkeyPatch.context() as patch, suppress(DsocrError):
            fail_from(patch, number)
            do(job, root)
        found = seen(root)
        found[-1] = found[-1] or before[-1]  # a result of the cache that is gone is read again
        assert all(one in pair for one, *pair in zip(found, before, after, strict=True)), calls[number]
        if found == before:
            do(job, root)
            assert seen(root) == after, calls[number]
