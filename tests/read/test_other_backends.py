"""Whole runs with servers as backends: in flight, with faults, recorded and read back; all against one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.report import Report
from dsocr_core.read.run import read_run
from dsocr_core.read.session import Session, Sides
from dsocr_core.reading.input_parity import DTYPE, LIMIT, NGRAM
from dsocr_core.reading.records import SIDES, CancelToken
from dsocr_core.review.review import open_review, run_fact
from dsocr_core.runs.history import History
from dsocr_core.runs.record import Recording
from dsocr_core.settings import Settings, settings_against
from tests.read.test_report import document, shown
from tests.support.flat_tables import flat_tables
from tests.support.scripted_server import (
    Reply,
    Sent,
    busy,
    scripted_server,
    whole,
)

OTHER = "<|ref|>title<|/ref|><|det|>[[1, 2, 300, 400]]<|/det|>\n# Hallo\n"


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "pages"
    folder.mkdir()
    found = [folder / f"page{number}.png" for number in range(6)]
    for number, path in enumerate(found):
        Image.new("RGB", (40, 30), (number, 0, 0)).save(path)
    return found


def served(address: str, **more: object) -> dict[str, object]:
    return {"spec": f"endpoint:{address}", "model": "m", **more}


def read(
    settings: list[Settings], plan: RunPlan, runs: Sequence[Recording] = (), cancel: CancelToken | None = None
) -> Report:
    return read_run(list(map(Session, settings)), plan, runs=runs, cancel=cancel)


def test_as_many_pages_are_in_flight_as_the_server_may_have(pages: list[Path], tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def script(reply: Reply, sent: Sent) -> None:
        together.wait(timeout=30)  # three are there at once, or the test fails
        whole()(reply, sent)

    with scripted_server(script) as server:
        settings = Settings(device="cpu", a=served(server.address, concurrency=3))
        report = read([settings], RunPlan(tuple(pages), tmp_path / "out"))
        assert server.most_in_flight == 3
    assert [row["image"] for row in document(report)["pages"]] == [page.name for page in pages]
    assert report.passed == 6


def test_several_are_each_compared_with_a_that_reads_once(pages: list[Path], tmp_path: Path) -> None:
    with (
        scripted_server(whole()) as a,
        scripted_server(whole()) as same,
        scripted_server(whole(OTHER)) as other,
        scripted_server(busy(503), whole()) as once,
    ):
        settings = Settings(device="cpu", a=served(a.address, name="far"))
        choices = [served(each.address) for each in (same, other, once)]
        all_settings = settings_against(settings, choices)
        plan = RunPlan(tuple(pages[:2]), tmp_path / "out", sides=SIDES)
        report = read(all_settings, plan)
        assert [len(server.bodies) for server in (a, same, other, once)] == [2, 2, 2, 2]
    found = document(report)
    assert found["a"] == "far"
    by_name = {row["name"]: row for row in found["backends"]}
    assert list(by_name) == ["endpoint", "endpoint-2", "endpoint-3"]
    assert by_name["endpoint"]["verdicts"]["identical"] == 2
    # "# Hallo" for "# Hello": one of the characters that are words of the page.
    assert by_name["endpoint-2"]["verdicts"]["differs"] == 2
    assert by_name["endpoint-2"]["character_error_rate"] == pytest.approx(1 / len("# Hello"))
    assert by_name["endpoint-3"]["verdicts"] == {
        "identical": 1, "within_tolerance": 0, "differs": 0, "not_comparable": 1,
    }  # fmt: skip
    assert by_name["endpoint-3"]["tokens_equal"] is None
    assert report.failed == 3
    assert sorted(path.name for path in (tmp_path / "out" / "backends").iterdir()) == list(by_name)
    said = shown(report, 80)
    assert "Against far" in said and "answered 503" in said and "not known" in said


def test_an_a_that_fails_is_compared_with_no_b(pages: list[Path], tmp_path: Path) -> None:
    with scripted_server(busy(503)) as a, scripted_server(whole()) as b:
        settings = settings_against(Settings(device="cpu", a=served(a.address)), [served(b.address)] * 2)
        sides = Sides(list(map(Session, settings)))
        compared, _ = sides.read(sides.first.settings.request(pages[0]), None, CancelToken())
        assert [list(each.errors) for each in compared] == [["a"], ["a"]]
        report = read(settings, RunPlan((pages[0],), tmp_path / "out", sides=SIDES))
    assert report.failed == 2
    assert [row["verdicts"]["not_comparable"] for row in document(report)["backends"]] == [1, 1]


def test_texts_of_no_page_are_in_the_document_and_in_what_people_see(
    pages: list[Path], tmp_path: Path
) -> None:
    left = tmp_path / "left"
    left.mkdir()
    for name in ("page0", "page1", "page9"):
        (left / f"{name}.md").write_text("a text", encoding="utf-8")
    (left / "bad.md").write_bytes(b"\xff")
    expected = {"texts": ["page9"], "files": [{"name": "bad.md", "reason": "not UTF-8 text (byte 0)"}]}
    folder = {"spec": f"folder:{left}"}
    settings = Settings(device="cpu", a=folder, b={**folder, "name": "again"})
    one = read([settings], RunPlan(tuple(pages[:2]), tmp_path / "one", sides=SIDES))
    assert document(one)["left_over"] == {"folder": expected, "again": expected}
    assert "again: 1 text of no page that was read: page9" in shown(one)
    assert "again: not taken: bad.md" in shown(one)


def test_each_pair_of_several_is_a_run_of_its_own(pages: list[Path], tmp_path: Path) -> None:
    broken, history = tmp_path / "broken.png", str(tmp_path / "history")
    broken.write_bytes(b"no picture")
    servers = (scripted_server(each) for each in (whole(), whole(), whole(OTHER)))
    with next(servers) as a, next(servers) as same, next(servers) as other:
        settings = Settings(device="cpu", a=served(a.address, name="far"), history=history)
        all_settings = settings_against(settings, [served(each.address) for each in (same, other)])
        plan = RunPlan((*pages[:2], broken), tmp_path / "out", sides=SIDES)
        recorders = [Recording(each) for each in all_settings]
        read(all_settings, plan, recorders)
        assert len(a.bodies) == 2  # A still reads a page once
    with History(history) as recorded:
        runs = [recorder.id for recorder in recorders]
        assert None not in runs and len(set(runs)) == 2
        for run_id, name, verdict in zip(
            runs, ("endpoint", "endpoint-2"), ("identical", "differs"), strict=True
        ):
            assert recorded.record(str(run_id)).backends == ("far", name)
            parity = recorded.sql(f"FROM parity WHERE run_id = '{run_id}'").sort_values("page")
            assert dict(zip(parity["page"], parity["verdict"], strict=True)) == {
                "broken.png": "not_comparable", "page0.png": verdict, "page1.png": verdict,
            }  # fmt: skip
            with_a = flat_tables(recorded, str(run_id))["images"].to_pylist()
            assert {row["backend"] for row in with_a if row["page"] == "page0.png"} == {"far", name}


def test_cancelled_between_several_what_each_pair_had_by_then_is_recorded(
    pages: list[Path], tmp_path: Path
) -> None:
    cancel, ended, out = CancelToken(), threading.Event(), tmp_path / "out"

    def stops(reply: Reply, sent: Sent) -> None:
        cancel.set()
        ended.wait(30)

    with scripted_server(whole()) as a, scripted_server(whole()) as b, scripted_server(stops) as last:
        settings = Settings(device="cpu", a=served(a.address), history=str(tmp_path / "history"))
        all_settings = settings_against(settings, [served(each.address) for each in (b, last, b)])
        runs = [Recording(each) for each in all_settings]
        plan = RunPlan(tuple(pages), out, sides=SIDES)
        with pytest.raises(Cancelled):
            read(all_settings, plan, runs, cancel)
        ended.set()
    assert [len(server.bodies) for server in (a, b, last)] == [1, 1, 1]
    with History(str(tmp_path / "history")) as history:
        read_by = [history.tables(str(run.id))["readings"]["backend"].to_pylist() for run in runs]
        assert read_by == [["endpoint", "endpoint-2"], ["endpoint"], ["endpoint"]]
    rows = pq.read_table(out / "readings.parquet")
    assert sorted(rows["backend"].to_pylist()) == ["endpoint", "endpoint-2"]


def test_a_review_tells_of_a_side_only_what_is_known_of_it(pages: list[Path], tmp_path: Path) -> None:
    with scripted_server(whole(), whole(OTHER)) as a, scripted_server(whole()) as b:
        # By name B would come first.
        sides = {"a": served(a.address, name="z"), "b": served(b.address, name="m")}
        settings = Settings(device="cpu", history=str(tmp_path / "history"), **sides)  # type: ignore[arg-type]
        recorder = Recording(settings, out=tmp_path / "out")
        read([settings], RunPlan(tuple(pages[:2]), tmp_path / "out", sides=SIDES), [recorder])
    assert recorder.id is not None
    with History(str(tmp_path / "history")) as history:
        review = open_review(history, recorder.id, recorder.id, None, None)
        assert (review.a.backend, review.b.backend) == ("z", "m")
        assert [page.verdict for page in review.pages] == ["differs", "identical"]
        assert run_fact(review.b, "dtype") is None
        assert "endpoint plain" == run_fact(review.a, "engine") == run_fact(review.b, "engine")
        lines = {line.name: line for page in review.pages for line in page.report.inputs}
        assert lines[NGRAM].b is None and lines[LIMIT].b is None and lines[DTYPE].b is None
