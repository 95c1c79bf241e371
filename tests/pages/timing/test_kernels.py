"""Kernels of two runs on the Timing page: what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.kernels import profile_of
from pages.widgets.shared import resources
from tests.support.opened_page import bodies, opened, words
from tests.support.timed_history import kernels, paced, record, write

HOSTILE = "<img src=x onerror=alert(1)>| kernel"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Two timed runs a commit, the second 20 % slower in decode, and a profile of each commit."""
    for place, name in enumerate(("old", "new")):
        commit = {"git_commit": str(place + 1) * 40}
        for number in range(2):
            factors = {"decode": 1.2} if place else {}
            write(tmp_path, record(f"{name}-{number}", 10 * place + number, **commit), paced(number, factors))
        sums = kernels("decode", {"gemm<4>(float*)": 2e6 + 1e6 * place, HOSTILE: 1e6, f"of_{name}": 5e5})
        write(tmp_path, record(f"{name}-nsys", 20 + place, profiled=True, **commit), {}, kernels=sums)
    made = History(tmp_path)
    monkeypatch.setattr(resources, "history", lambda: made)
    return made


def test_two_runs_kernels_are_drawn_and_tabled(history: History) -> None:
    test = opened("timing", view="Kernels", run="new-nsys", against="old-nsys")
    table = test.dataframe[0].value
    assert table["found"].tolist() == ["in both", "gone", "new", "in both"]
    assert table["change_s"].tolist() == pytest.approx([1e-3, -5e-4, 5e-4, 0])
    assert (
        "2 kernels in both, 1 new in B, 1 gone, by name and launch shape; 3.50 ms → 4.50 ms in all."
        in words(test)
    )
    assert not [body for body in bodies(test) if "<img" in body]
    assert not test.get("plotly_chart")  # sums have no roofline
    assert test.selectbox(key="timing part").options == ["all", "decode"]
    alone = opened("timing", view="Kernels", run="new-nsys")
    shares = alone.dataframe[0].value.set_index("short")["share"]
    assert shares["gemm"] == pytest.approx(3 / 4.5) and shares.sum() == pytest.approx(1)


def test_the_pair_leads_to_the_kernels_of_its_commits(history: History) -> None:
    runs = history.runs()
    assert [profile_of(history, runs, run) for run in ("old-0", "new-1")] == ["old-nsys", "new-nsys"]
    test = opened("timing", a="old-0", b="new-1")
    test.button(key="timing kernels").click().run()
    assert test.session_state["timing values"]["view"] == "Kernels"
    assert {name: test.session_state[f"timing {name}"] for name in ("against", "run", "part")} == {
        "against": "old-nsys", "run": "new-nsys", "part": "decode",
    }  # fmt: skip
    assert profile_of(history, runs[runs["git_commit"] != "1" * 40], "new-0") == "new-nsys"
