"""Real processes that die, hang and fail: every page once, nothing lost, each failure named."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster import local
from dsocr_core.cluster.local import local_cluster
from dsocr_core.cluster.pages import PageRef
from dsocr_core.cluster.status import Figures
from dsocr_core.cluster.worker import MOST_STARTS, Reader, WorkerJob
from tests.cluster.cluster_runs import STAND_IN, WORKER, Heard, drive, job_for, make_pages
from tests.cluster.made_up_output import check_exactly_once, readings


def test_workers_killed_at_random_cost_no_page(tmp_path: Path) -> None:
    """One of two workers is killed after the third commit and after the sixth, as the kernel would."""
    make_pages(tmp_path / "pages", 32)
    commits, killed = itertools.count(1), list[int]()
    with local_cluster([WORKER] * 2) as client:

        def kill(_: Figures) -> None:
            nannies = [each for each in client.cluster.workers.values() if each.process is not None]
            pids = [each.process.pid for each in nannies if psutil.pid_exists(each.process.pid or -1)]
            if next(commits) % 3 == 0 and len(killed) < 2 and pids:
                killed.append(max(pids))
                os.kill(killed[-1], signal.SIGKILL)

        figures = drive(client, job_for(tmp_path / "pages"), str(tmp_path / "out"), Heard(kill))
    assert len(killed) == 2 and figures.complete
    assert (figures.read, figures.failed, figures.quarantined) == (32, 0, 0)
    check_exactly_once(str(tmp_path / "out"), 32)


CAUSES = {1: "ended by SIGABRT", 5: "no page ended within 4 s", 9: "took more than 0.5 GiB of memory"}


def test_pages_that_end_their_process_are_quarantined_with_what_is_known(tmp_path: Path) -> None:
    """Found among others, in shards that are read beside each other; all other pages are read, and so is one
    that ends its process but once: it is read alone. Then a shard's worker is lost again and again.
    """
    once = f"once {tmp_path / 'flag'}"
    special = {1: "abort", 5: "hang", 9: "memory", 7: once, 11: "fail"}
    make_pages(tmp_path / "pages", 12, special)
    out, heard, limits = str(tmp_path / "out"), Heard(), (4.0, 2**29)
    with local_cluster([WORKER]) as client:
        job = job_for(tmp_path / "pages")
        figures = drive(client, job, out, heard, limits=limits)
        assert (figures.read, figures.failed, figures.quarantined) == (8, 1, 3)
        check_exactly_once(out, 12, special)
        found = {page.number: page for page in readings(out) if page.result is None}
        assert set(found) == {1, 5, 9, 11}
        for number, cause in CAUSES.items():
            assert found[number].status == "quarantined"
            assert (found[number].error or "").startswith(cause)
            assert any("1 quarantined" in line and cause in line for line in heard.words)
        assert figures.causes == {**dict.fromkeys(CAUSES.values(), 1), "planted failure": 1}

        make_pages(tmp_path / "pages", 12)
        figures = drive(client, job, out, heard, limits=limits, redo=True)
        assert (figures.read, figures.failed, figures.quarantined, figures.complete) == (12, 0, 0, True)

        make_pages(tmp_path / "pages", 12, {6: "parent"})
        figures = drive(client, job, str(tmp_path / "out2"))
        assert figures.causes == {"its worker was lost 3 times": 4}
        lost = [page.number for page in readings(str(tmp_path / "out2")) if page.result is None]
        assert lost == [4, 5, 6, 7]
        with pytest.raises(DsocrError, match="another version of this code"):
            drive(client, replace(job, code="older"), str(tmp_path / "older"))


def test_each_worker_has_its_gpu_and_nothing_of_dasks_memory(tmp_path: Path) -> None:
    variables = ("CUDA_VISIBLE_DEVICES", "MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS")
    make_pages(tmp_path / "pages", 3, {number: f"env {name}" for number, name in enumerate(variables)})
    with local_cluster([{**WORKER, "CUDA_VISIBLE_DEVICES": "GPU-5f"}]) as client:
        drive(client, job_for(tmp_path / "pages"), str(tmp_path / "out"))
    seen = [page.result and page.result.text_raw for page in readings(str(tmp_path / "out"))]
    assert seen == ["GPU-5f", "nothing", "1"]


# --- killed while they start ----------------------------------------------------------------------


@pytest.mark.parametrize("kills", [1, MOST_STARTS])
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
            with pytest.raises(DsocrError, match="ended 3 times before it began a page: ended by SIGKILL"):
                reader.read([page])
    finally:
        reader.stop()
    assert (tmp_path / "starts").stat().st_size == min(kills + 1, MOST_STARTS)


def test_workers_that_die_while_they_start_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SpecCluster", Mock(side_effect=RuntimeError("Nanny failed to start.")))
    with pytest.raises(DsocrError, match=r"no workers could be started .Nanny failed"), local_cluster([{}]):
        pass
