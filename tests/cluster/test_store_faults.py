"""A store that refuses, is slow, cuts uploads off, loses answers: every page once, nothing half-written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cluster.listing import list_files
from dsocr_core.cluster.local import local_cluster
from dsocr_core.cluster.status import Figures, read_status
from dsocr_core.runs.storage.store import Store
from tests.support.cluster_runs import WORKER, Heard, check_exactly_once, drive, job_for, make_pages
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.s3_server import s3_server

BUCKET = "pages"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """An S3 of the test's own behind a proxy."""
    with s3_server(monkeypatch, BUCKET) as (host, port), fault_proxy(host, port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


def test_objects_are_listed_a_page_of_them_a_request(proxy: FaultProxy) -> None:
    store = Store(f"s3://{BUCKET}/in")
    for name in ("b.png", "a.png", "deep/c.pdf", "notes.txt", ".hidden.png"):
        store.put(name, b"x")
    expected = [f"s3://{BUCKET}/in/{name}" for name in ("a.png", "b.png", "deep/c.pdf")]
    assert list(list_files([f"s3://{BUCKET}/in"])) == expected


def test_a_store_with_faults_of_every_kind_has_every_page_once(proxy: FaultProxy, tmp_path: Path) -> None:
    """A seventh of all requests goes wrong; after a third of the pages nothing is answered for a while."""
    make_pages(tmp_path / "pages", 20)
    out = f"s3://{BUCKET}/run"
    random_, outage = random.Random(3), [0]
    kinds: tuple[Fault, ...] = ("refuse", "cut upload", "lose answer", "slow")

    def decide(method: str, path: str, number: int) -> Fault:
        if outage[0]:
            outage[0] -= 1
            return "refuse"
        return random_.choice(kinds) if random_.random() < 1 / 7 else None

    def away(figures: Figures) -> None:
        if figures.pages >= 8 and proxy.decide is decide and not away_once:
            away_once.append(1)
            outage[0] = 24

    away_once: list[int] = []
    job, heard = job_for(tmp_path / "pages"), Heard(away)
    proxy.decide = decide
    with local_cluster([WORKER] * 2) as client:
        figures = drive(client, job, out, heard)
        proxy.decide = lambda method, path, number: None
        assert figures.read == 20
        assert set(proxy.faults) == set(kinds)
        assert read_status(out).complete
        check_exactly_once(out, 20)
    paused = [line for line in heard.words if "paused: s3://pages/run/" in line]
    assert paused and all("; trying again" in line for line in paused)
    assert any(line.endswith("the output is there again: going on") for line in heard.words)
