"""The campaign finds what is planted, and a short run of every generator finds nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.page import decode_pool
from dsocr_core.runs.checksums import CHECKSUMS
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from tests.hostile import campaign
from tests.hostile.campaign import CPU_SECONDS, GENERATORS, attempt_of, outcome, run_generator
from tests.hostile.tables import write_runs

CASES = {
    "images": 60, "pdfs": 25, "markup": 100, "checkpoints": 60,
    "tables": 5, "profiles": 150, "archives": 8, "addresses": 60, "answers": 100,
}  # fmt: skip


def test_every_planted_fault_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "MEMORY_BYTES", 100_000_000)
    tally = run_generator("planted", seconds=300, seed=0, hang_s=3.0, most=11)
    assert [finding[:2] for finding in tally.findings] == [
        (2, "traceback"), (3, "wrong success"), (4, "memory"), (5, "hang"), (6, "traceback"), (7, "memory"),
    ]  # fmt: skip
    assert "KeyError" in tally.findings[0][2] and "process died" in tally.findings[4][2]
    assert (tally.refused, tally.accepted, tally.cases) == (1, 6, 11)


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


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    write_runs(tmp_path / "made")
    file = next((tmp_path / "made").rglob("run-0/readings.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.append_column("page", pa.array(["p"] * len(table))), file)
    (file.parent / CHECKSUMS).unlink(missing_ok=True)
    with History(tmp_path / "history") as history:
        report = import_paths(history, [file.parent])
    assert report.imported == []
    assert any("readings.parquet has a column twice" in item.reason for item in report.skipped)
