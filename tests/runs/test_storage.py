"""Files of a cluster's output: whole or not at all, in a directory and in memory, with the same faults."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.reading.writing import StorageError
from dsocr_core.runs.storage import FileStore


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "out" if request.param == "directory" else f"memory://{tmp_path.name}/out/")


def test_a_file_is_put_read_listed_and_removed(store: FileStore) -> None:
    assert store.names("a") == [] and store.read("a/x.json") is None
    for name, content in (("a/x.json", b"1"), ("a/x.json", b"22"), ("a/b/y.json", b"3")):
        store.put(name, content)
    assert store.names("a") == ["b", "x.json"]
    found = dict(store.read_many(["a/x.json", "a/none", "a/b/y.json"]))
    assert found == {"a/x.json": b"22", "a/b/y.json": b"3"}
    assert store.read("a/x.json", most=2) == b"22"
    with pytest.raises(InvalidFile):
        store.read("a/x.json", most=1)
    for _ in range(2):
        store.remove("a/x.json")
    assert store.read("a/x.json") is None and store.names("a") == ["b"]


def test_of_many_writers_at_once_one_makes_the_file(store: FileStore) -> None:
    start = threading.Barrier(16)

    def write(number: int) -> bool:
        start.wait()
        return store.put("done/x.json", str(number).encode(), new=True)

    with ThreadPoolExecutor(16) as threads:
        made = [number for number, own in enumerate(threads.map(write, range(16))) if own]
    assert made and not store.put("done/x.json", b"again", new=True)
    assert store.names("done") == ["x.json"], "temporary files are left"
    if store.root is not None:  # memory has no locks
        assert store.read("done/x.json") == str(*made).encode()


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises((InvalidFile, StorageError)):
            FileStore(tmp_path).read(name)


def test_a_store_that_fails_is_one_line_that_names_it(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    for name in ("pipe_file", "cat_file", "ls", "rm_file") if store.root is None else ():
        monkeypatch.setattr(store.fs, name, fail)
    for name in ("os.fsync", "os.open", "pathlib.Path.iterdir", "pathlib.Path.unlink") if store.root else ():
        monkeypatch.setattr(name, fail)
    for attempt in (
        lambda: store.put("x", b"1"), lambda: store.put("y", b"1", new=True), lambda: store.read("x"),
        lambda: store.names("x"), lambda: store.remove("x"),
    ):  # fmt: skip
        with pytest.raises(StorageError, match="Input/output error") as raised:
            attempt()
        assert store.location in str(raised.value) and "\n" not in str(raised.value)


def test_a_place_that_cannot_be_a_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/run.json: (File exists|Not a directory)"):
        FileStore(tmp_path / "file").put("run.json", b"")
    with pytest.raises(StorageError, match="give a path, or a URL"):
        FileStore("nonsense://bucket")
