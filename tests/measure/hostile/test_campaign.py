"""The campaign finds what is planted, and a short run of every generator finds nothing."""

from __future__ import annotations

import os
import queue
from pathlib import Path

import pytest

from dsocr_core.inputs import opener
from dsocr_core.measure.hostile import campaign
from dsocr_core.measure.hostile.campaign import GENERATORS, PACKAGE, run_generator
from dsocr_core.measure.hostile.server import CPU_SECONDS, attempt_of, outcome

CASES = {
    "images": 60, "pdfs": 25, "markup": 100, "checkpoints": 60,
    "tables": 5, "archives": 8, "addresses": 60, "settings": 60,
}  # fmt: skip


def test_every_planted_fault_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "MEMORY_BYTES", 100_000_000)
    tally = run_generator("tests.support.hostile_attempts", seconds=8.0, seed=0, hang_s=2.0)
    assert [(finding.number, finding.kind) for finding in tally.findings] == [
        (2, "traceback"), (3, "wrong success"), (4, "memory"), (5, "hang"), (6, "traceback"),
        (7, "memory"), (8, "memory"),
    ]  # fmt: skip
    assert "KeyError" in tally.findings[0].text and "process died" in tally.findings[4].text
    assert tally.refused == 1 and tally.accepted > 1 and tally.cases > 10


@pytest.mark.parametrize(("ends", "found"), [(True, []), (False, ["hang"])])
def test_a_case_that_waits_for_a_core_does_not_hang_yet(
    ends: bool, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with much else to do: asked at the start of a case, and whenever the time is over."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    lines.put(b'{"begins": 7}')
    asked: list[int] = []

    def waiting(pid: int) -> float:
        asked.append(pid)
        if ends and len(asked) == 3:
            lines.put(b'{"end": "accepted", "grown": 0}')
            lines.put(b"")
        return 1000.0 if len(asked) == 3 else 0.0

    monkeypatch.setattr(campaign, "waiting_for_a_core_s", waiting)
    tally = campaign.Tally("images")
    (tmp_path / "stderr").write_bytes(b"")
    assert campaign._watched(tally, lines, 5, 0, float("inf"), 0.01, tmp_path) == 8
    assert [finding.kind for finding in tally.findings if finding.kind != "traceback"] == found
    assert tally.accepted == int(ends) and asked == [5] * (3 if ends else 4)


def test_waiting_for_a_core_counts_every_thread_of_a_process_and_of_its_children(tmp_path: Path) -> None:
    threads = {(7, 7): (2_000_000_000, "9"), (7, 8): (500_000_000, ""), (9, 9): (250_000_000, "")}
    for (process, thread), (waited_ns, children) in threads.items():
        task = tmp_path / str(process) / "task" / str(thread)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"123 {waited_ns} 45\n")
        (task / "children").write_text(children)
    assert campaign.waiting_for_a_core_s(7, tmp_path) == 2.75
    assert campaign.waiting_for_a_core_s(9, tmp_path) == 0.25
    assert campaign.waiting_for_a_core_s(8, tmp_path) == 0  # no process of this number


def test_waiting_for_a_core_is_read_of_this_system() -> None:
    waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    assert campaign.waiting_for_a_core_s(os.getpid()) >= waited_ns / 1e9


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.filterwarnings("ignore")
def test_hostile_input_is_refused_or_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "CPU_SECONDS", CPU_SECONDS)
    module = f"{PACKAGE}.{name}"
    attempt = attempt_of(module)
    ends = [outcome(attempt, "0", module, number, tmp_path) for number in range(CASES[name])]
    assert [ended for ended in ends if ended["end"] not in ("refused", "accepted")] == []
    assert max(ended["grown"] for ended in ends) < 10**9
