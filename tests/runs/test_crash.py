"""Several processes at once, and some killed at any point: nothing is lost or seen in part."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.history import History
from tests.support.busy_process import check
from tests.support.kills import killed


@pytest.mark.parametrize(("most", "seconds"), [(8, 0), pytest.param(1000, 60, marks=pytest.mark.slow)])
def test_writers_and_readers_at_once(interpreter: Path, tmp_path: Path, most: int, seconds: float) -> None:
    """Three writers and three readers, one of them here, until there are so many runs and time is up."""
    began, root, stop = time.monotonic(), tmp_path / "h", tmp_path / "stop"
    with contextlib.ExitStack() as stack:

        def busy(kind: str, name: str) -> subprocess.Popen[str]:
            command = [str(interpreter), "-m", "tests.support.busy_process", kind, str(root), name, str(stop)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        writers = [busy("write", f"writer{name}") for name in "abc"]
        readers = [busy("read", "") for _ in range(2)]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        with History(root) as history:
            while len(history) < most or time.monotonic() - began < seconds:
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
            # A reader that stopped first may lack the writers' last runs; a busy machine may allow one round.
            found = json.loads(output)
            missing = {*written} - {*found["runs"]}
            assert found["rounds"] > 0 and {*found["runs"]} <= {*written} and len(missing) <= 6
    with History(root) as history:
        assert check(history) == sorted(written) and len(written) >= most
        assert history.storage.leftovers() == []


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["write", "index"])
def test_a_process_killed_at_any_point(interpreter: Path, tmp_path: Path, kind: str, times: int) -> None:
    """What it left is looked at by an open history, and by a new one."""
    moments, whole = random.Random(11), dict[str, bytes]()
    with History(tmp_path) as history:
        for number in range(times):
            arguments = (kind, tmp_path, f"{kind}{number}", tmp_path / "never")
            finished = killed([interpreter, "-m", "tests.support.busy_process", *arguments], moments)
            history.refresh()
            runs = check(history)
            # One may be whole without having been named.
            assert {*whole, *finished} <= {*runs} and len({*runs} - {*whole, *finished}) <= 1
            for run_id in runs:
                directory = tmp_path / "runs" / run_id
                verify(directory, checksums := read_checksums(directory), checksums)
                content = (directory / CHECKSUMS).read_bytes()
                assert whole.setdefault(run_id, content) == content
            with History(tmp_path) as fresh:
                assert fresh.run_ids() == history.run_ids()
            assert len(history.storage.leftovers()) <= 1 + number % 2
            if number % 2:
                for left in history.storage.leftovers():
                    shutil.rmtree(left.path)
                assert not any((tmp_path / "unfinished").iterdir())
        folder = history._made.path.parent
    assert {file.name for file in folder.iterdir()} == {"history.duckdb"}
