"""A short run of every generator of hostile input finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.page import decode_pool
from tests.hostile.campaign import CPU_SECONDS, EXPECTED, GENERATORS, outcome

CASES = {
    "images": 60, "pdfs": 25, "checkpoints": 60, "profiles": 150, "archives": 5,
    "addresses": 60, "answers": 100,
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.filterwarnings("ignore")
def test_hostile_input_is_refused_or_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "CPU_SECONDS", CPU_SECONDS)
    ends = [outcome(name, 0, number, tmp_path) for number in range(CASES[name])]
    assert [ended for ended in ends if ended["end"] not in EXPECTED] == []
