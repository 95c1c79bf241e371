"""Clusters of real processes, started quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.warm_interpreter import CHILDREN


@pytest.fixture(autouse=True)
def quick_workers(quick_spawn: None) -> None:
    """Local Dask workers are spawned, so they are forks of one that has the imports."""


@pytest.fixture
def quick_readers(quick_workers: None, interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader processes that workers start are forks, too; their memory limit does not see them."""
    monkeypatch.setenv(CHILDREN, str(interpreter))
