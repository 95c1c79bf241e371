"""`make test`: both parts run whatever the first says, and it fails where one of them does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsocr_core.base.paths import PROJECT_ROOT

PYTHON = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in *--ignore*) exit {unit};; *) exit {browser};; esac
"""


@pytest.mark.parametrize(("unit", "browser"), [(1, 0), (0, 1), (0, 0)])
def test_both_parts_run(tmp_path: Path, unit: int, browser: int) -> None:
    (tmp_path / "bin").mkdir()
    python, calls = tmp_path / "bin" / "python", tmp_path / "calls"
    python.write_text(PYTHON.format(calls=calls, unit=unit, browser=browser))
    python.chmod(0o755)
    for name in (".installed", ".installed-dev"):
        (tmp_path / name).touch()
    done = subprocess.run(["make", "test", f"VENV={tmp_path}"], cwd=PROJECT_ROOT, capture_output=True)
    assert (done.returncode != 0) == bool(unit or browser)
    first, second = calls.read_text().splitlines()
    assert "tests/browser -n 2" in second and all("--durations 25" in part for part in (first, second))
