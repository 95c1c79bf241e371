"""A file system of one megabyte, really full: what was saved stays, and what does not fit is one line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.runs.export import ExportError, export_runs
from dsocr_core.runs.history import History
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.storage import StorageError
from tests.support.made_up_runs import record


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "dsocr-test", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"mounting is not allowed here: {made.stderr.decode(errors='replace').strip()[:80]}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def write(root: Path, name: str, text: bytes) -> None:
    with RunDirectory.create(root, record(name)) as run:
        run.add_rows("readings", [{"page": "p", "backend": "eager", "text_raw": text.hex()}])


def test_what_was_saved_before_the_disk_was_full_stays(disk: Path) -> None:
    saved = []
    with pytest.raises(StorageError, match="No space left on device") as raised:
        for number in range(100):
            write(disk / "h", f"run-{number}", os.urandom(40_000))
            saved.append(f"run-{number}")
    assert "\n" not in str(raised.value) and len(saved) > 3
    with History(disk / "h") as history:
        assert sorted(history.run_ids()) == sorted(saved) and not history.problems
        for refused in (
            lambda: history.note(saved[0], "x" * 800_000),
            lambda: export_runs(history, saved, disk / "out.zip"),
        ):
            with pytest.raises((StorageError, ExportError), match="No space left on device"):
                refused()
        assert not (disk / "out.zip").exists() and not list(disk.glob(".part-*"))
        assert sorted(history.run_ids()) == sorted(saved) and not history.problems
        history.storage.leftovers(clear=True)
        assert not any((disk / "h" / "unfinished").iterdir())
        for name in saved[:3]:  # what is left may be less than the smallest run takes
            history.storage.remove(name)
        write(disk / "h", "run-small", b"fits again")
        history.refresh()
        assert "run-small" in history
