"""A history to import into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.runs.history import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened
