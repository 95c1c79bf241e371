"""Real processes that die, hang and fail: every page once, nothing lost, each failure named."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from distributed import Client

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.local import local_cluster
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.run import TooManyFailed
from dsocr_core.cluster.status import Figures, read_status
from tests.support.cluster_runs import (
    WORKER,
    Heard,
    check_exactly_once,
    cluster,
    drive,
    job_for,
    make_pages,
    readings,
)


def kill_a_worker(client: Client, random_: random.Random) -> bool:
    """End one of the worker processes as the kernel would; False while none is up."""
    pids = sorted(
        nanny.process.pid
        for nanny in client.cluster.workers.values()
        if nanny.process is not None and nanny.process.pid and psutil.pid_exists(nanny.process.pid)
    )
    if not pids:
        return False
    os.kill(random_.choice(pids), signal.SIGKILL)
    return True


def killer(client: Client, kills: int, every: int, seed: int) -> tuple[Callable[[Figures], None], list[int]]:
    random_, killed, commits = random.Random(seed), [], [0]

    def on_commit(figures: Figures) -> None:
        commits[0] += 1
        if commits[0] % every == 0 and len(killed) < kills and kill_a_worker(client, random_):
            killed.append(figures.pages)

    return on_commit, killed


@pytest.mark.parametrize(
    ("kills", "pages"), [(2, 32), pytest.param(20, 400, marks=pytest.mark.slow)], ids=["2", "20"]
)
def test_workers_killed_at_random_cost_no_page(tmp_path: Path, kills: int, pages: int) -> None:
    make_pages(tmp_path / "pages", pages)
    out = str(tmp_path / "out")
    with cluster(2) as client:
        on_commit, killed = killer(client, kills, every=3, seed=7)
        figures = drive(client, job_for(tmp_path / "pages"), out, Heard(on_commit))
    assert len(killed) == kills
    assert (figures.read, figures.failed, figures.quarantined) == (pages, 0, 0)
    check_exactly_once(out, pages)
    assert read_status(Output(out)).complete


POISON = {1: "abort", 5: "hang", 9: "memory"}
CAUSES = {1: "ended by SIGABRT", 5: "no page ended within 4 s", 9: "took more than 0.5 GiB of memory"}


def test_pages_that_end_their_process_are_quarantined_with_what_is_known(tmp_path: Path) -> None:
    """Found among others, in shards that are read beside each other; all other pages are read."""
    make_pages(tmp_path / "pages", 12, POISON | {11: "fail"})
    out, heard = str(tmp_path / "out"), Heard()
    limits = (4.0, 2**29)
    with cluster(1) as client:
        figures = drive(client, job_for(tmp_path / "pages"), out, heard, limits=limits)
        assert (figures.read, figures.failed, figures.quarantined) == (8, 1, 3)
        check_exactly_once(out, 12, POISON | {11: "fail"})
        found = {page.number: page for page in readings(out) if page.result is None}
        assert set(found) == {1, 5, 9, 11}
        for number, cause in CAUSES.items():
            assert found[number].status == "quarantined"
            assert (found[number].error or "").startswith(cause)
            assert any("1 quarantined" in line and cause in line for line in heard.words)
        assert figures.causes == {**dict.fromkeys(CAUSES.values(), 1), "planted failure": 1}

        # What failed is read again, alone: two of the pages are well by then.
        make_pages(tmp_path / "pages", 12, {1: "abort"})
        figures = drive(client, job_for(tmp_path / "pages"), out, heard, limits=limits, redo=True)
    assert (figures.read, figures.failed, figures.quarantined) == (11, 0, 1)
    assert [page.number for page in readings(out) if page.result is None] == [1]
    assert read_status(Output(out)).document() | {"pages_per_s": None} == {
        "pages": 12, "done": 11, "failed": 0, "quarantined": 1, "pages_per_s": None, "complete": True,
    }  # fmt: skip


def test_a_shard_that_loses_its_workers_again_and_again_counts_as_failed(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 8, {5: "parent"})
    out = str(tmp_path / "out")
    with cluster(1) as client:
        figures = drive(client, job_for(tmp_path / "pages"), out, fallback_percent=100.0)
    assert (figures.read, figures.failed) == (4, 4)
    assert figures.causes == {"its worker was lost 3 times": 4}
    assert [page.number for page in readings(out) if page.result is None] == [4, 5, 6, 7]


def test_a_run_ends_when_more_pages_fail_than_allowed(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 200, dict.fromkeys(range(0, 200, 2), "fail"))
    out = str(tmp_path / "out")
    with cluster(1) as client:
        with pytest.raises(
            TooManyFailed, match=r"pages failed, more than 10%: .* planted failure; mend that"
        ):
            drive(client, job_for(tmp_path / "pages", 20), out)
        assert 100 <= read_status(Output(out)).pages < 200
        figures = drive(client, job_for(tmp_path / "pages", 20), out, fallback_percent=60.0)
    assert (figures.read, figures.failed) == (100, 100)


def test_workers_of_another_version_are_refused(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 4)
    job = job_for(tmp_path / "pages")
    with cluster(1) as client, pytest.raises(DsocrError, match="another version of this code"):
        drive(client, type(job)(**{**vars(job), "code": "older"}), str(tmp_path / "out"))


def test_each_worker_reads_on_the_gpu_it_is_pinned_to(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 16, dict.fromkeys(range(16), "env CUDA_VISIBLE_DEVICES"))
    out = str(tmp_path / "out")
    gpus = ("3", "GPU-5f")
    with local_cluster([{**WORKER, "CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]) as client:
        drive(client, job_for(tmp_path / "pages", 1), out)
    output = Output(out)
    seen = {
        (marker.worker.rpartition("/")[2], output.pages(marker)[0].result.text_raw)
        for marker in output.markers(output.marker_names().values())
    }
    assert seen <= {("0", "3"), ("1", "GPU-5f")} and seen


def test_what_dask_sets_for_its_own_memory_does_not_reach_the_engine(tmp_path: Path) -> None:
    variables = ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS")
    make_pages(tmp_path / "pages", 2, {number: f"env {name}" for number, name in enumerate(variables)})
    out = str(tmp_path / "out")
    with local_cluster([WORKER]) as client:
        in_worker = client.submit(os.environ.get, variables[0], pure=False).result(timeout=60)
        drive(client, job_for(tmp_path / "pages"), out)
    assert in_worker == "65536", "Dask no longer sets it: child_environment can go"
    assert [page.result and page.result.text_raw for page in readings(out)] == ["nothing", "1"]
