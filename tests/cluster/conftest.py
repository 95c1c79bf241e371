"""Clusters of real processes, started quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.warm_interpreter import CHILDREN


@pytest.fixture(autouse=True)
def quick_workers(quick_spawn: None) -> None:
    """So are the local Dask workers of this process."""


@pytest.fixture
def quick_readers(quick_workers: None, interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the reader processes that these workers start; their memory is not seen."""
    monkeypatch.setenv(CHILDREN, str(interpreter))
