"""Histories to import into: one of a test, and one for files that are each a run of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import RunRecord
from tests.support.flat_tables import flat_tables

Imported = list[tuple[RunRecord, dict[str, pa.Table]]]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened


@pytest.fixture(scope="session")
def history_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A history for all tests: to open one takes longer than to import."""
    with History(tmp_path_factory.mktemp("imported")) as history:
        yield history


@pytest.fixture
def imported(history_of_all: History) -> Callable[[Path], Imported]:
    """The runs in a file and their tables, first those whose documents another file had; none is refused."""

    def take(file: Path) -> Imported:
        report = import_paths(history_of_all, [file])
        assert not report.skipped, report.skipped
        ids = [run.run_id for run in (*report.known, *report.imported)]
        return [(history_of_all.record(each), flat_tables(history_of_all, each)) for each in ids]

    return take
