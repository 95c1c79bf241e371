"""Several processes at once, and some killed at any point: nothing is lost or seen in part."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from dsocr_core.runs.history import History
from tests.support.busy_process import check
from tests.support.kills import killed


def share(python: Path, root: Path, stop: Path, runs: int, seconds: float) -> None:
    """Two writers and three readers, one of them here, until there are so many runs and time is up."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:

        def busy(kind: str, name: str) -> subprocess.Popen[str]:
            command = [python, "-m", "tests.support.busy_process", kind, root, name, stop]
            process = subprocess.Popen(
                [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        writers = [busy("write", f"writer{name}") for name in "ab"]
        readers = [busy("read", "") for _ in range(2)]
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
        for reader in readers:
            output, errors = reader.communicate(timeout=120)
            assert reader.returncode == 0, errors
            # A reader that stopped first may lack the writers' last run; a busy machine may allow one round.
            found = json.loads(output)
            missing = {*written} - {*found["runs"]}
            assert found["rounds"] > 0 and {*found["runs"]} <= {*written} and len(missing) <= 4
    assert len(written) >= runs
    with History(root) as history:
        assert check(history) == sorted(written)
        assert history.storage.leftovers() == []


@pytest.mark.parametrize(("runs", "seconds"), [(8, 0), pytest.param(1000, 60, marks=pytest.mark.slow)])
def test_writers_and_readers_at_once(interpreter: Path, tmp_path: Path, runs: int, seconds: float) -> None:
    share(interpreter, tmp_path / "h", tmp_path / "stop", runs, seconds)


def kill_often(python: Path, kind: str, root: Path, times: int) -> None:
    """Kill a process so often, and look at what it left: by an open history, and by a new one."""
    moments = random.Random(11)
    whole: dict[str, str] = {}
    with History(root) as history:
        for number in range(times):
            arguments = (kind, root, f"{kind}{number}", root / "never")
            told = killed([python, "-m", "tests.support.busy_process", *arguments], moments)
            history.refresh()
            runs = check(history)
            # One may be whole without having been told.
            assert {*whole, *told} <= {*runs} and len({*runs} - {*whole, *told}) <= 1
            whole |= {run_id: content(root / "runs" / run_id) for run_id in runs if run_id not in whole}
            with History(root) as fresh:
                assert fresh.run_ids() == history.run_ids()
            assert len(history.storage.leftovers()) <= 1 + number % 2
            if number % 2:
                for left in history.storage.leftovers():
                    shutil.rmtree(left.path)
                assert not any((root / "unfinished").iterdir())
        assert whole == {run_id: content(root / "runs" / run_id) for run_id in check(history)}
        folder = history._made.path.parent
    assert {file.name for file in folder.iterdir()} == {"history.duckdb", "lock"}


def content(directory: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        digest.update(file.relative_to(directory).as_posix().encode())
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["write", "index"])
def test_a_process_killed_at_any_point(interpreter: Path, tmp_path: Path, kind: str, times: int) -> None:
    kill_often(interpreter, kind, tmp_path, times)
