"""What is killed while it starts is started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster import local
from dsocr_core.cluster.pages import PageRef
from dsocr_core.cluster.reader import MOST_STARTS, Reader, ReaderError, WorkerJob
from tests.support.cluster_runs import STAND_IN, job_for, make_pages


@pytest.mark.parametrize("kills", [1, MOST_STARTS - 1, MOST_STARTS])
def test_a_reader_process_that_is_killed_while_it_loads_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setenv("STAND_IN_KILLED", f"{kills}:{tmp_path / 'starts'}")
    make_pages(tmp_path / "pages", 1)
    job = job_for(tmp_path / "pages")
    reader = Reader(WorkerJob("", "", job.settings, job.code, module=STAND_IN), tmp_path)
    page = PageRef(0, str(tmp_path / "pages" / "00000.png"))
    try:
        if kills < MOST_STARTS:
            (read,) = reader.read([page])
            assert read.result is not None and read.result.text_raw == "page 0"
        else:
            with pytest.raises(ReaderError, match="ended while it loaded: ended by SIGKILL"):
                reader.read([page])
    finally:
        reader.stop()
    assert (tmp_path / "starts").stat().st_size == min(kills + 1, MOST_STARTS)


@pytest.mark.parametrize("failures", [MOST_STARTS - 1, MOST_STARTS])
def test_workers_that_die_while_they_start_are_started_again(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    starts: list[int] = []

    def cluster(*_: Any, **__: Any) -> str:
        starts.append(1)
        if len(starts) <= failures:
            raise RuntimeError("Nanny failed to start.")
        return "up"

    monkeypatch.setattr(local, "SpecCluster", cluster)
    if failures < MOST_STARTS:
        assert local._started({}, {}) == "up"  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(DsocrError, match=r"no workers could be started .Nanny failed"):
            local._started({}, {})
