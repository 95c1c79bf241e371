"""A run of 500 pages with planted differences, written once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dsocr_core.runs.store import History
from tests.support.planted import Planted, plant


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[History, Planted]]:
    with History(tmp_path_factory.mktemp("planted")) as history:
        yield history, plant(history)
