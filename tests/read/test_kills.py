"""`--out` killed at any moment: what was finished is there, once, and the next run needs no hand."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dsocr_core.runs.checksums import read_checksums, verify
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.directory_writes import opened
from tests.support.kills import killed


def kill_often(python: Path, root: Path, times: int) -> None:
    """Kill one run after the other into a directory."""
    moments, told = random.Random(str(root.name)), []
    for number in range(times):
        command = [python, "-m", "tests.support.busy_process", "out", root, "", root / "never"]
        told += killed(command, moments, after=moments.randrange(5))
        assert len(told) == len(set(told))
        if number % 3:
            with contextlib.closing(RunDirectory.open(root / "out")) as run:
                found = [source for _, source, *_ in run.done()]
        else:  # as any later run does, it ends what was begun
            with opened(root) as directory:
                found = [source for _, source, _ in directory.done()]
            check(root / "out", found)
        # A page may be whole without having been told.
        assert {*told} <= {*found} and len(found) == len({*found}) <= len(told) + number + 1
        told = sorted(found)
    with opened(root) as directory:
        pass
    check(root / "out", told)


def check(run: Path, told: list[str]) -> None:
    """Each page is in the run once."""
    if not told:
        return
    rows = pq.read_table(run / "readings.parquet", columns=["page", "text_raw"]).to_pylist()
    pages = Counter(row["page"] for row in rows)
    assert {*told} <= pages.keys() and set(pages.values()) <= {1} and all(row["text_raw"] for row in rows)
    checksums = read_checksums(run)
    assert checksums is not None
    verify(run, checksums, checksums)
    assert not [*run.rglob(".*")]


@pytest.mark.parametrize(
    ("series", "times"), [(0, 3), *(pytest.param(n, 20, marks=pytest.mark.slow) for n in range(1, 11))]
)
def test_a_run_directory_is_killed_at_any_point(
    interpreter: Path, tmp_path: Path, series: int, times: int
) -> None:
    (tmp_path / str(series)).mkdir()
    kill_often(interpreter, tmp_path / str(series), times)
