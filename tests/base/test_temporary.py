"""Temporary directories of commands that run, and of those that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dsocr_core.base.temporary import PREFIX, Temporary
from dsocr_core.runs.storage import leftovers_in

MADE = "from dsocr_core.base.temporary import Temporary as T; t = T({!r}); print(t.name, flush=True); input()"


@pytest.mark.parametrize("what", ["import", "history", "vendor"])
def test_what_a_killed_command_left_is_told_from_what_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "another-program").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", MADE.format(what)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)}, text=True,
    )  # fmt: skip
    with other, Temporary(what) as own:
        assert other.stdout is not None
        killed = other.stdout.readline().strip()
        assert leftovers_in(tmp_path, PREFIX) == []
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert [left.path for left in leftovers_in(tmp_path, PREFIX)] == [killed]
        assert [left.path for left in leftovers_in(tmp_path, PREFIX, clear=True)] == [killed]
        assert {path.name for path in tmp_path.iterdir()} == {"another-program", Path(own).name}
