"""Real processes that die, hang and fail: every page once, nothing lost, each failure named."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

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
    sorted_markers,
)


def test_workers_killed_at_random_cost_no_page(tmp_path: Path) -> None:
    """One of two workers is killed after the third commit and after the sixth, as the kernel would."""
    make_pages(tmp_path / "pages", 32)
    chance, commits, killed = random.Random(7), [0], []
    with cluster(2) as client:

        def kill(_: Figures) -> None:
            commits[0] += 1
            nannies = [each for each in client.cluster.workers.values() if each.process is not None]
            pids = sorted(each.process.pid for each in nannies if psutil.pid_exists(each.process.pid or -1))
            if commits[0] % 3 == 0 and len(killed) < 2 and pids:
                killed.append(chance.choice(pids))
                os.kill(killed[-1], signal.SIGKILL)

        figures = drive(client, job_for(tmp_path / "pages"), str(tmp_path / "out"), Heard(kill))
    assert len(killed) == 2 and figures.complete
    assert (figures.read, figures.failed, figures.quarantined) == (32, 0, 0)
    check_exactly_once(str(tmp_path / "out"), 32)


POISON = {1: "abort", 5: "hang", 9: "memory"}
CAUSES = {1: "ended by SIGABRT", 5: "no page ended within 4 s", 9: "took more than 0.5 GiB of memory"}


def test_pages_that_end_their_process_are_quarantined_with_what_is_known(tmp_path: Path) -> None:
    """Found among others, in shards that are read beside each other; all other pages are read, and so is one
    that ends its process but once: it is read alone.
    """
    special = POISON | {7: f"once {tmp_path / 'flag'}", 11: "fail"}
    make_pages(tmp_path / "pages", 12, special)
    out, heard, limits = str(tmp_path / "out"), Heard(), (4.0, 2**29)
    with cluster(1) as client:
        figures = drive(client, job_for(tmp_path / "pages"), out, heard, limits=limits)
        assert (figures.read, figures.failed, figures.quarantined) == (8, 1, 3)
        check_exactly_once(out, 12, special)
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
    assert [page.number for page in readings(out) if page.result is None] == [1]
    assert figures.document() | {"pages_per_s": None} == {
        "pages": 12, "done": 11, "failed": 0, "quarantined": 1, "pages_per_s": None, "complete": True,
    }  # fmt: skip


def test_a_shard_that_loses_its_workers_again_and_again_counts_as_failed(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 8, {5: "parent"})
    out = str(tmp_path / "out")
    with cluster(1) as client:
        figures = drive(client, job_for(tmp_path / "pages"), out, fallback_percent=100.0)
    assert figures.causes == {"its worker was lost 3 times": 4}
    assert [page.number for page in readings(out) if page.result is None] == [4, 5, 6, 7]


def test_a_run_ends_when_more_pages_fail_than_allowed(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 200, dict.fromkeys(range(0, 200, 2), "fail"))
    job, out = job_for(tmp_path / "pages", 20), str(tmp_path / "out")
    with cluster(1) as client:
        words = r"pages failed, more than 10%: .* planted failure; mend that"
        with pytest.raises(TooManyFailed, match=words):
            drive(client, job, out)
        assert 100 <= read_status(Output(out)).pages < 200
        figures = drive(client, job, out, fallback_percent=60.0)
        assert (figures.read, figures.failed) == (100, 100)
        with pytest.raises(DsocrError, match="another version of this code"):
            drive(client, replace(job, code="older"), str(tmp_path / "older"))


def test_each_worker_has_its_gpu_and_nothing_of_dasks_memory(tmp_path: Path) -> None:
    variables = ("CUDA_VISIBLE_DEVICES", "MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS")
    special = {number: f"env {variables[number % 3]}" for number in range(18)}
    make_pages(tmp_path / "pages", 18, special)
    out, gpus = str(tmp_path / "out"), ("3", "GPU-5f")
    with local_cluster([{**WORKER, "CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]) as client:
        in_worker = client.submit(os.environ.get, variables[1], pure=False).result(timeout=60)
        drive(client, job_for(tmp_path / "pages", 3), out)
    assert in_worker == "65536", "Dask no longer sets it: child_environment can go"
    output = Output(out)
    seen = {
        (
            marker.worker.rpartition("/")[2],
            *(page.result and page.result.text_raw for page in output.pages(marker)),
        )
        for marker in sorted_markers(output)
    }
    assert seen and seen <= {(str(worker), gpu, "nothing", "1") for worker, gpu in enumerate(gpus)}
