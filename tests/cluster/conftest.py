"""Clusters of real processes, started quickly."""

from __future__ import annotations

import multiprocessing.spawn
import os
from pathlib import Path

import pytest

from tests.support.warm_interpreter import CHILDREN


@pytest.fixture(autouse=True)
def quick_workers(interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local Dask workers of this process are forks of one that has Dask imported."""
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(interpreter))


@pytest.fixture
def quick_readers(quick_workers: None, interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the reader processes that these workers start; their memory is not seen."""
    monkeypatch.setenv(CHILDREN, str(interpreter))
