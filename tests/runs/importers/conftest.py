"""Histories to import into: one of a test, and one for files that are each a run of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.runs.history import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened


@pytest.fixture(scope="session")
def history_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A history for all tests: to open one takes longer than to import."""
    with History(tmp_path_factory.mktemp("imported")) as history:
        yield history
