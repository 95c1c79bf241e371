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
from dsocr_core.read.session import Session
from dsocr_core.reading.records import SIDES, CancelToken
from dsocr_core.runs.history import History
from dsocr_core.runs.record import Recording
from dsocr_core.settings import Settings, settings_against
from tests.backends.endpoint.scripted_server import Reply, Sent, busy, scripted_server, whole
from tests.read.test_report import document, shown

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


def test_several_are_each_compared_with_a_that_reads_once_and_each_is_a_run(
    pages: list[Path], tmp_path: Path
) -> None:
    with (
        scripted_server(whole()) as a,
        scripted_server(whole()) as same,
        scripted_server(whole(OTHER)) as other,
        scripted_server(busy(503), whole()) as once,
    ):
        settings = Settings(device="cpu", a=served(a.address, name="far"), history=str(tmp_path / "history"))
        all_settings = settings_against(settings, [served(each.address) for each in (same, other, once)])
        runs = [Recording(each) for each in all_settings]
        (broken := tmp_path / "broken.png").write_bytes(b"no picture")
        report = read(all_settings, RunPlan((*pages[:2], broken), tmp_path / "out", sides=SIDES), runs)
        assert [len(server.bodies) for server in (a, same, other, once)] == [2, 2, 2, 2]
    found, names = document(report), ["endpoint", "endpoint-2", "endpoint-3"]
    assert (found["a"], [row["name"] for row in found["backends"]]) == ("far", names)
    verdicts = [{name: n for name, n in row["verdicts"].items() if n} for row in found["backends"]]
    assert verdicts == [
        {"identical": 2, "not_comparable": 1}, {"differs": 2, "not_comparable": 1},
        {"identical": 1, "not_comparable": 2},
    ]  # fmt: skip
    # "# Hallo" for "# Hello": one of the characters that are words of the page.
    page = found["pages"][0]["against"]["endpoint-2"]
    assert page["character_error_rate"] == pytest.approx(1 / len("# Hello")) and report.failed == 6
    assert sorted(path.name for path in (tmp_path / "out" / "backends").iterdir()) == names
    said = shown(report, 80)
    assert "Against far" in said and "answered 503" in said
    with History(settings.history) as history:
        for run, name, expected in zip(runs, names, verdicts, strict=True):
            assert history.record(str(run.id)).backends == ("far", name)
            parity = history.sql(f"SELECT verdict FROM parity WHERE run_id = '{run.id}'")["verdict"]
            assert parity.value_counts().to_dict() == expected
            rows = history.tables(str(run.id))["readings"].to_pylist()
            assert {row["backend"] for row in rows if row["page"] == "page0.png"} == {"far", name}


def test_an_a_that_fails_is_compared_with_no_b(pages: list[Path], tmp_path: Path) -> None:
    with scripted_server(busy(503)) as a, scripted_server(whole()) as b:
        settings = settings_against(Settings(device="cpu", a=served(a.address)), [served(b.address)] * 2)
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
    expected = {"texts_of_no_page": ["page9"], "files_not_read": ["bad.md: not UTF-8 text (byte 0)"]}
    folder = {"spec": f"folder:{left}"}
    settings = Settings(device="cpu", a=folder, b={**folder, "name": "again"})
    one = read([settings], RunPlan(tuple(pages[:2]), tmp_path / "one", sides=SIDES))
    assert document(one)["left_over"] == {"folder": expected, "again": expected}
    assert "again: texts of no page (1): page9" in shown(one)
    assert "again: files not read (1): bad.md" in shown(one)


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
