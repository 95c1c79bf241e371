"""Several processes at once, and writers killed at any point: nothing is lost, nothing is seen in part."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.history.store import History
from tests.support.busy_process import check


@contextlib.contextmanager
def busy(python: Path, kind: str, root: Path, name: str, stop: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(python), "-m", "tests.support.busy_process", kind, str(root), name, str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def share(python: Path, root: Path, stop: Path, runs: int, seconds: float = 0) -> None:
    """Two writers and three readers until there are so many runs and time is up."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(busy(python, "write", root, f"writer{name}", stop)) for name in "ab"]
        readers = [stack.enter_context(busy(python, "read", root, "", stop)) for _ in range(3)]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        with History(root) as history:
            while len(history) < runs or time.monotonic() - began < seconds:
                history.refresh()
                check(history)
        stop.touch()
        written = []
        for writer in writers:
            # Not `communicate`: it passes over what `readline` has taken in beyond its line.
            assert writer.stdout is not None and writer.stderr is not None
            written += writer.stdout.read().split()
            assert writer.wait(timeout=120) == 0, writer.stderr.read()
        told = []
        for reader in readers:
            output, errors = reader.communicate(timeout=120)
            assert reader.returncode == 0, errors
            told.append(json.loads(output))
    assert len(written) >= runs
    with History(root) as history:
        assert check(history) == sorted(written)
        assert history.storage.leftovers() == []
        # Readers that stopped first may lack the writers' last run.
        for reader in told:
            assert reader["rounds"] > 0  # a busy machine may allow no more
            missing = set(written) - set(reader["runs"])
            assert set(reader["runs"]) <= set(written) and len(missing) <= 4


def test_writers_and_readers_at_once(interpreter: Path, tmp_path: Path) -> None:
    share(interpreter, tmp_path / "h", tmp_path / "stop", 12)


@pytest.mark.slow
def test_writers_and_readers_at_once_for_a_minute(interpreter: Path, tmp_path: Path) -> None:
    share(interpreter, tmp_path / "h", tmp_path / "stop", 1000, seconds=60)


def kill_writers(python: Path, root: Path, times: int) -> None:
    """Kill a writer so often, each time after a seeded while, and look at what it left."""
    moments = random.Random(11)
    whole: dict[str, str] = {}
    with History(root) as history:
        for number in range(times):
            with busy(python, "write", root, f"writer{number}", root / "never") as process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(moments.uniform(0.0, 0.4))
                process.kill()
                told = process.stdout.read().split()
            history.refresh()
            runs = check(history)
            assert set(told) <= set(runs)
            # One may be whole without having been told.
            assert len(set(runs) - set(told) - set(whole)) <= 1
            for run_id in runs:
                digest = content(root / "runs" / run_id)
                assert whole.setdefault(run_id, digest) == digest
            assert whole.keys() == set(runs)
            assert len(history.storage.leftovers()) <= 1 + number % 2
            if number % 2:
                history.storage.clear()
                assert history.storage.leftovers() == []
                assert not any((root / "unfinished").iterdir())
        with History(root) as fresh:
            assert check(fresh) == sorted(whole)


def content(directory: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        digest.update(file.relative_to(directory).as_posix().encode())
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


def test_a_writer_killed_at_any_point(interpreter: Path, tmp_path: Path) -> None:
    kill_writers(interpreter, tmp_path, 5)


@pytest.mark.slow
def test_a_writer_killed_at_fifty_points(interpreter: Path, tmp_path: Path) -> None:
    kill_writers(interpreter, tmp_path, 50)
