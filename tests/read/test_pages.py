"""Many pages: flat memory, nothing lost by a kill, what is done is not done again."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

import dsocr_core.read.loop as loop
import dsocr_core.runs.result_cache as results
from dsocr_core.backends.on_device import EngineBackend, PublishedBackend
from dsocr_core.base import errors
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.engine.page import PreparedPage
from dsocr_core.models.family import preset_named
from dsocr_core.page.preprocess import prepare
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.report import Report
from dsocr_core.read.run import read_run
from dsocr_core.reading.artifacts import folder_key
from dsocr_core.reading.records import SIDES, OcrRequest, OcrResult, Side
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import Recording
from dsocr_core.settings import InferSettings, Settings
from tests.support.sessions import StandIn, session_of


class FakeEngine(StandIn):
    """Counts prepared pages that wait for their turn; with `long` their texts and pixels take memory."""

    def __init__(self, act: Callable[[OcrRequest], None] = lambda _: None, long: bool = False) -> None:
        super().__init__(act=act)
        self.long, self.waiting, self.most_waiting = long, 0, 0

    def prepare(self, request: OcrRequest, opened: PreparedPage) -> PreparedPage:
        prepared = super().prepare(request, opened)
        if self.long:
            prepared = replace(prepared, image=prepare(opened.picture, preset_named("tiny")))
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        return prepared

    def recognize(self, request: OcrRequest, *_: Any, **__: Any) -> OcrResult:
        self.waiting -= 1
        result = replace(super().recognize(request), image_size=(16, 12), token_ids=(1, 2), token_texts=())
        return replace(result, text_raw=result.text_raw + "words " * 4000 * self.long)


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RUNS_DIRECTORY", tmp_path / "runs")
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand of them are slow, and no test's subject


def make_pages(folder: Path, count: int) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"page{number:03d}.png" for number in range(count)]
    for number, path in enumerate(paths):
        Image.new("RGB", (16, 12), (number % 256, 0, 0)).save(path)
    return paths


def read(
    pages: list[Path], out: Path, engine: FakeEngine, resume: bool = False, settings: Settings | None = None
) -> Report:
    session = session_of(settings or Settings(device="cpu"), out.with_name("results"), engine)
    return read_run([session], RunPlan(tuple(pages), out, resume=resume))


def lines(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def files(out: Path) -> dict[str, object]:
    """All that a directory holds but for what tells one call from another."""
    found: dict[str, object] = {}
    for path in out.rglob("*"):
        if path.suffix == ".parquet":
            found[path.name] = pq.read_table(path).drop_columns("run_id").to_pylist()
        elif path.is_file() and path.name not in ("run.json", "SHA256SUMS"):
            found[str(path.relative_to(out))] = re.sub(rb', "run": "[^"]*"', b"", path.read_bytes())
    return found


def test_memory_stays_flat_over_many_pages(tmp_path: Path) -> None:
    sizes: list[int] = []

    def weigh(request: OcrRequest) -> None:
        if request.name == "page020.png":  # what is traced takes twice as long
            tracemalloc.start()
        if request.name in ("page030.png", "page058.png"):
            while engine.waiting < loop.PREFETCHED:  # as many are held each time
                threading.Event().wait(0.005)
            gc.collect()
            # The interpreter's own table of names, which paths are interned in, doubles once in a while.
            table = tracemalloc.Filter(False, "*pathlib.py")
            taken = tracemalloc.take_snapshot().filter_traces([table])
            sizes.append(sum(each.size for each in taken.statistics("filename")))

    engine = FakeEngine(weigh, long=True)
    try:
        report = read(make_pages(tmp_path / "pages", 62), tmp_path / "out", engine)
    finally:
        tracemalloc.stop()
    assert (report.passed, report.failed, len(lines(tmp_path / "out"))) == (62, 0, 62)
    # 28 pages of 24 KB text and 0.8 MB pixels each went by in between.
    assert sizes[1] - sizes[0] < 100_000, sizes
    assert engine.most_waiting <= loop.PREFETCHED + 1 + 1  # the one being read, and the next on its way


def test_a_killed_run_resumes_as_if_it_had_not_been_killed(tmp_path: Path) -> None:
    pages = make_pages(tmp_path / "pages", 12)
    read(pages, tmp_path / "whole", FakeEngine())

    def die(request: OcrRequest) -> None:
        if request.name == "page007.png":
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            read(pages, tmp_path / "killed", FakeEngine(die))
        finally:
            os._exit(1)  # not reached
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    # What a kill in the middle of a write leaves.
    half = tmp_path / "killed" / "viz" / f".part-{folder_key(str(pages[7].resolve()))}"
    half.mkdir()

    engine = FakeEngine()
    report = read(pages, tmp_path / "killed", engine, resume=True)
    assert engine.read == [page.name for page in pages[7:]]
    assert (report.passed, report.failed, report.skipped) == (5, 0, 7)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert not half.exists()


def test_other_content_or_settings_are_read_again_and_the_rest_is_not(tmp_path: Path) -> None:
    pages, out = make_pages(tmp_path / "pages", 3), tmp_path / "out"
    read(pages, out, FakeEngine())
    Image.new("RGB", (16, 12), "white").save(pages[1])
    changed = FakeEngine()
    assert read(pages, out, changed, resume=True).skipped == 2
    assert changed.read == ["page001.png"]
    again = FakeEngine()
    settings = Settings(device="cpu", infer=InferSettings(max_new_tokens=9))
    assert read(pages, out, again, resume=True, settings=settings).skipped == 0
    assert len(again.read) == len(lines(out)) == 3


def test_a_page_that_fails_costs_itself_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "LOG_FILE", tmp_path / "errors.log")
    pages, out = make_pages(tmp_path / "pages", 5), tmp_path / "out"
    good = pages[0].read_bytes()
    pages[0].write_bytes(b"not a picture")
    raised = {"page002.png": DsocrError("page002.png: died"), "page004.png": ZeroDivisionError("of things")}

    def fail(request: OcrRequest) -> None:
        if request.name in raised:
            raise raised[request.name]

    report = read(pages, out, FakeEngine(fail))
    assert (report.passed, report.failed) == (2, 3)
    written = lines(out)
    first, second, third = (str(line["error"]) for line in written if "error" in line)
    assert "not an image" in first and second == "page002.png: died"
    assert re.search(r"unforeseen ZeroDivisionError, number [0-9a-f]{8}: errors.log has the rest", third)
    assert "of things" in (tmp_path / "errors.log").read_text()
    infos = [json.loads(path.read_text()) for path in out.glob("viz/*/info.json")]
    assert {info["source_image"] for info in infos} == {
        line["image"] for line in written if "error" not in line
    }

    pages[0].write_bytes(good)
    engine = FakeEngine()
    assert read(pages, out, engine, resume=True).failed == 0
    assert engine.read == ["page000.png", "page002.png", "page004.png"]
    assert sorted(str(line["source"]) for line in lines(out)) == [page.name for page in pages]
    assert all("error" not in line for line in lines(out))


@pytest.mark.parametrize("sides", [("a",), SIDES])
def test_pages_of_which_none_can_be_opened_load_no_model(
    tmp_path: Path, sides: tuple[Side, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = make_pages(tmp_path / "pages", 2)
    for page in pages:
        page.write_bytes(page.read_bytes()[:-30])
    for backend in (EngineBackend, PublishedBackend):
        monkeypatch.setattr(backend, "load", lambda *_: pytest.fail("a backend was loaded"))
    session = session_of(Settings(device="cpu"), tmp_path / "results")
    assert read_run([session], RunPlan(tuple(pages), tmp_path / "out", sides=sides)).failed == 2


def test_what_is_no_run_directory_is_neither_written_over_nor_left_behind(tmp_path: Path) -> None:
    out, before = tmp_path / "out", '{"image": "/a.png", "source": "a.png", "backend": "eager"}\n'
    with pytest.raises(DsocrError, match="no such file"):
        read([tmp_path / "nowhere.png"], out, FakeEngine())
    assert not out.exists()
    with pytest.raises(DsocrError, match="could not be written"):
        read([tmp_path], tmp_path / "a\0b", FakeEngine())
    out.mkdir()
    (out / "predictions.jsonl").write_text(before)
    pages = make_pages(tmp_path / "pages", 1)
    for resume in (True, False):
        with pytest.raises(DsocrError, match="of another version or program; give another --out"):
            read(pages, out, FakeEngine(), resume=resume)
        assert [(path.name, path.read_text()) for path in out.iterdir()] == [("predictions.jsonl", before)]


def test_a_run_directory_is_the_run_that_was_saved(tmp_path: Path) -> None:
    """The same files under two names, known to an import."""
    pages, out = make_pages(tmp_path / "pages", 3), tmp_path / "out"
    pages[1].write_bytes(b"no picture")
    settings = Settings(device="cpu", history=str(tmp_path / "history"))
    session = session_of(settings, tmp_path / "results", FakeEngine())
    recorder = Recording(settings, "python -m dsocr_core run pages", out=out)
    read_run([session], RunPlan(tuple(pages), out), runs=[recorder])
    run_id = str(recorder.id)
    with History(settings.history) as history, History(tmp_path / "elsewhere") as elsewhere:
        saved = history.directory(run_id)
        for file in saved.rglob("*.*"):
            assert file.samefile(out / file.relative_to(saved))
        known, taken = import_paths(history, [out]), import_paths(elsewhere, [out])
        assert ([run.run_id for run in known.known], known.imported) == ([run_id], [])
        assert ([run.run_id for run in taken.imported], taken.skipped) == ([run_id], [])
        assert elsewhere.record(run_id) == history.record(run_id)
        assert elsewhere.tables(run_id) == history.tables(run_id)
        copied, own = (
            {file.name for file in at.directory(run_id).rglob("*.*")} for at in (elsewhere, history)
        )
        assert copied == own
        # The page that failed is tried again: the directory is another run then, the saved one is as it was.
        pages[1].write_bytes(pages[0].read_bytes())
        plan = RunPlan(tuple(pages), out, resume=True)
        with pytest.raises(DsocrError, match="has a run already, which cannot grow and be saved"):
            read_run([session], plan, runs=[Recording(settings, out=out)])
        read_run([session], plan, runs=[Recording(settings, out=out, save=False)])
        history.refresh()
        assert len(history.tables(run_id)["readings"]) == 3 and len(history) == 1
        [whole] = import_paths(elsewhere, [out]).imported
        rows = elsewhere.tables(whole.run_id)["readings"].to_pylist()
        assert whole.run_id != run_id and not any(row["error"] for row in rows)
        assert sorted(row["page"] for row in rows) == [page.name for page in pages]


def test_a_name_that_is_not_utf_8_is_shown_escaped_and_leads_back_to_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [page] = make_pages(tmp_path / "pages", 1)
    odd = page.rename(page.with_name(os.fsdecode(b"caf\xe9 \\x41 \x1b[2J.png")))
    report, out = read([odd], tmp_path / "out", FakeEngine()), tmp_path / "out"
    shown = "caf\\xe9 \\\\x41 \x1b[2J.png"
    assert report.failed == 0 and [line["source"] for line in lines(out)] == [shown]
    report.write_json(sys.stdout)
    assert "caf\\\\xe9" in capsys.readouterr().out
    info = json.loads((out / f"viz/{folder_key(str(odd.resolve()))}/info.json").read_bytes())
    assert info["source_image"] == name_text(odd)
    with History(tmp_path / "imported") as history:
        import_paths(history, [out])
        [row] = history.sql("FROM readings").to_dict("records")
        assert Path(text_name(row["path"])) == odd.resolve() and text_name(row["page"]) == odd.name


# --- one run at a time in a directory -----------------------------------------------------------


def test_a_second_run_into_a_directory_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    pages, out = make_pages(tmp_path / "pages", 2), tmp_path / "out"
    refused: list[str] = []

    def files() -> dict[Path, int]:
        return {file: file.stat().st_ino for file in out.glob("*.*")}

    def act(_: OcrRequest) -> None:
        before = files()
        with pytest.raises(DsocrError) as busy:
            read(pages, out, FakeEngine())
        refused.append(str(busy.value))
        assert files() == before

    for _ in "new", "whole":
        assert read(pages, out, FakeEngine(act)).read == 2
    assert all(f"{out}: another process writes" in words and "--out" in words for words in refused)
    assert len(refused) == 4
    assert read(pages, out, FakeEngine()).read == 2
