"""One run in the history at the end: stage times, workers, stragglers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.cluster.figures import record_figures
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.status import StatusReader
from dsocr_core.history.store import History
from dsocr_core.settings import Settings
from tests.support.flat_tables import flat_tables
from tests.support.made_up_output import HOSTILE, MadeUpOutput


def test_a_run_over_a_cluster_is_one_run_of_the_history(tmp_path: Path) -> None:
    made = MadeUpOutput(tmp_path / "out")
    made.commit(12)
    reader = StatusReader(made.output)
    reader.read()
    settings = Settings(preset="tiny", history=str(tmp_path / "history"))
    record = Job.of(settings, ("x",), 50).record("dsocr run x --cluster local")
    run_id = record_figures(settings, record, reader.figures, "out")
    with History(tmp_path / "history") as history:
        assert history.run_ids() == [run_id] and not history.problems
        record = history.record(run_id)
        times = {row["stage"]: row for row in flat_tables(history, run_id)["stage_timings"].to_pylist()}
    facts = record.environment["cluster"]
    assert (facts["pages"], facts["read"], facts["failed"], facts["quarantined"]) == (600, 576, 12, 12)
    assert facts["stragglers"] == [f"slow {HOSTILE}"]
    worker = facts["workers"]["node-1/0"]
    assert worker == {
        "pages": 150, "pages_per_s": 25.0, "straggler": False,
        "ms_per_page": {"prefill": pytest.approx(20.16), "decode": pytest.approx(297.6)},
    }  # fmt: skip
    assert times["decode"]["milliseconds"] == pytest.approx(310.0)
    assert times["decode"]["aggregate"] == "mean"
