"""`bench --cluster`: the same bench on every worker at once, each in a process of its own."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cli.bench import _of_a_worker
from dsocr_core.cli.main import main
from dsocr_core.cluster.bench_workers import Worker, bench_workers, stragglers
from dsocr_core.errors import Cancelled
from tests.support.cluster_runs import cluster


@pytest.mark.usefixtures("quick_readers")
def test_every_worker_reports_its_figures_in_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--preset", "tiny", "--tokens", "3", "--repeat", "1", "--size", "320x320", "--device", "cpu"]
    assert main(["bench", "--cluster", "local", "--workers", "1", *options]) == 0
    printed = capsys.readouterr().out.splitlines()
    document = json.loads(printed[-1])
    (name,) = document["workers"]
    found = document["workers"][name]
    assert (found["preset"], found["tokens"], found["size"]) == ("tiny", 3, [320, 320])
    assert found["engines"][0]["tokens_per_s"]["median"] > 0
    assert document["stragglers"] == {"eager": []}
    assert any(name in line and "eager" in line for line in printed[:-1])


@pytest.mark.usefixtures("quick_readers")
def test_what_cannot_run_on_a_worker_is_its_line_and_cancel_ends_its_process(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with cluster(1) as client:
        (worker,) = bench_workers(client, ["--size", "0x0"], 60.0, threading.Event())
        assert worker.document is None and "size is 0x0" in (worker.error or "")
        (worker,) = bench_workers(client, ["--preset", "tiny"], 0.01, threading.Event())
        assert worker.error == "not done within 0.01 s; give --bench-limit more"
        cancel = threading.Event()
        cancel.set()
        with pytest.raises(Cancelled):
            bench_workers(client, ["--preset", "tiny", "--repeat", "1000"], 600.0, cancel)
        # The worker is free again: nothing is running in it.
        client.submit(begun.touch, pure=False).result(timeout=60)
    assert begun.exists()


def test_a_worker_that_decodes_less_than_nine_tenths_of_the_median_is_a_straggler() -> None:
    def worker(name: str, speed: float) -> Worker:
        return Worker(name, {"engines": [{"name": "fast", "tokens_per_s": {"median": speed}}]})

    workers = [worker("a", 100.0), worker("b", 89.0), worker("c", 101.0), Worker("d", error="lost")]
    assert stragglers(workers, "fast") == ["b"]
    assert stragglers(workers, "eager") == []
    assert stragglers(workers[:1], "fast") == []


@pytest.mark.parametrize(
    "typed",
    [
        "python -m dsocr_core bench --cluster tcp://h:1 --engine eager fast --workers=2 --tokens 7 --json",
        "dsocr bench --engine eager fast --bench-limit 9 --tokens 7 --cluster=local",
    ],
)
def test_a_worker_is_given_the_options_that_are_not_the_drivers(typed: str) -> None:
    assert _of_a_worker(typed) == ["--engine", "eager", "fast", "--tokens", "7"]
