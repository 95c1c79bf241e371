"""The campaign finds what is planted, and a short run of every generator finds nothing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from dsocr_core.inputs import opener
from tests.hostile import campaign
from tests.hostile.attempts import CPU_SECONDS, attempt_of, outcome
from tests.hostile.campaign import GENERATORS, run_generator

CASES = {
    "images": 60, "pdfs": 25, "markup": 100, "checkpoints": 60,
    "tables": 5, "archives": 8, "addresses": 60, "settings": 60, "requests": 200,
}  # fmt: skip


def test_every_planted_fault_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "MEMORY_BYTES", 100_000_000)
    tally = run_generator("planted", seconds=8.0, seed=0, hang_s=2.0)
    assert [finding[:2] for finding in tally.findings] == [
        (2, "traceback"), (3, "wrong success"), (4, "memory"), (5, "hang"), (6, "traceback"),
        (7, "memory"), (8, "memory"),
    ]  # fmt: skip
    assert "KeyError" in tally.findings[0][2] and "process died" in tally.findings[4][2]
    assert tally.refused == 1 and tally.accepted > 1 and tally.cases > 10


@pytest.mark.parametrize(("waited_s", "kind"), [([0, 0, 1000], "traceback"), ([0, 0, 0], "hang")])
def test_a_case_that_waits_for_a_core_does_not_hang_yet(
    waited_s: list[float], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at the start, as the case begins, and when its time is over; then its process ends."""
    ours, theirs = multiprocessing.Pipe()
    theirs.send(7)

    def waiting(pid: int) -> float:
        if len(waited_s) == 1:
            theirs.close()
        return waited_s.pop(0)

    monkeypatch.setattr(campaign, "waiting_for_a_core_s", waiting)
    tally = campaign.Tally("images")
    assert campaign.watched(tally, ours, 5, 0, float("inf"), 0.01) == 8
    assert [finding[:2] for finding in tally.findings] == [(7, kind)]


def test_waiting_for_a_core_counts_every_thread_of_a_process_and_of_its_children(tmp_path: Path) -> None:
    threads = {(7, 7): (2_000_000_000, "9"), (7, 8): (500_000_000, ""), (9, 9): (250_000_000, "")}
    for (process, thread), (waited_ns, children) in threads.items():
        task = tmp_path / str(process) / "task" / str(thread)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"123 {waited_ns} 45\n")
        (task / "children").write_text(children)
    found = [campaign.waiting_for_a_core_s(process, tmp_path) for process in (7, 9, 8)]
    assert found == [2.75, 0.25, 0]  # there is no process 8


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.filterwarnings("ignore")
def test_hostile_input_is_refused_or_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "CPU_SECONDS", CPU_SECONDS)
    attempt = attempt_of(name)
    ends = [outcome(attempt, f"0 {name}", number, tmp_path) for number in range(CASES[name])]
    assert [ended for ended in ends if ended["end"] not in ("refused", "accepted")] == []
    assert max(ended["grown"] for ended in ends) < 10**9
