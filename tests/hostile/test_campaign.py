"""The campaign finds what is planted, and a short run of every generator finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.page import decode_pool
from tests.hostile import campaign
from tests.hostile.campaign import CPU_SECONDS, GENERATORS, attempt_of, outcome, run_generator

CASES = {
    "images": 60, "pdfs": 25, "markup": 100, "checkpoints": 60,
    "tables": 5, "profiles": 150, "archives": 8, "addresses": 60, "answers": 100,
}  # fmt: skip


def test_every_planted_fault_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "MEMORY_BYTES", 100_000_000)
    tally = run_generator("planted", seconds=300, seed=0, hang_s=3.0, most=9)
    assert [finding[:2] for finding in tally.findings] == [
        (2, "traceback"), (3, "wrong success"), (4, "memory"), (5, "hang"), (6, "traceback"),
    ]  # fmt: skip
    assert "KeyError" in tally.findings[0][2] and "process died" in tally.findings[4][2]
    assert (tally.ends["refused"], tally.ends["accepted"], tally.ends.total()) == (1, 4, 9)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.filterwarnings("ignore")
def test_hostile_input_is_refused_or_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "CPU_SECONDS", CPU_SECONDS)
    attempt = attempt_of(name)
    ends = [outcome(attempt, f"0 {name}", number, tmp_path) for number in range(CASES[name])]
    assert [ended for ended in ends if ended["end"] not in ("refused", "accepted")] == []
    assert max(ended["grown"] for ended in ends) < 10**9
