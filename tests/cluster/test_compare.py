"""Outputs of a cluster as runs: compared with each other and with a run, and imported as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.cli import compare_runs
from dsocr_core.cli.main import main
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageReading, PageRef
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.results import PageResults, readings
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings
from tests.cluster import made_up_output
from tests.cluster.made_up_output import a_result, committed, planned
from tests.support.made_up_runs import record

PAGES = 10
TEXT = "<|ref|>text<|/ref|><|det|>[[10, 10, 500, 60]]<|/det|>\nThe quick brown fox"


def made(
    folder: Path, special: Mapping[int, OcrResult | str] = {}, shards: int = 3, shard_pages: int = 4,
    root: str = "/data",
) -> Output:  # fmt: skip
    """An output with as many of its shards committed; special pages are read differently, or failed."""
    output, job = Output(str(folder)), Job.of(Settings(preset="tiny", a="eager"), (root,), shard_pages)

    def read(page: PageRef) -> PageReading:
        times = [(Stage.PREFILL, 2.0), (Stage.DECODE, 3.0)]
        found = special.get(page.number, a_result(TEXT, times, environment={"device_name": "one"}))
        return page.failed(found) if isinstance(found, str) else page.read(found)

    files = [f"{root}/{number:02d}.png" for number in range(PAGES)]
    for shard in planned(output, job, files)[:shards]:
        committed(output, shard, read)
    return output


def test_a_complete_output_is_imported_as_it_is_and_another_one_refused(tmp_path: Path) -> None:
    output = made(tmp_path / "out", {3: "planted"})
    made(tmp_path / "half", shards=2)
    with History(tmp_path / "h") as history:
        report = import_paths(history, [tmp_path / "out"])
        assert ([run.run_id for run in report.imported], report.skipped) == ([output.run()["id"]], [])
        assert [run.run_id for run in import_paths(history, [tmp_path / "out"]).known] == history.run_ids()
        [skipped] = import_paths(history, [tmp_path / "half"]).skipped
        assert skipped.reason.startswith("8 of 10 pages are read") and not history.problems
        [run_id] = history.run_ids()
        found = readings(history, run_id)
        assert list(found.requests) == [(f"{number:02d}.png", "eager") for number in range(PAGES)]
        assert found.failures == {("03.png", "eager"): "planted"}
        pages = made_up_output.readings(str(tmp_path / "out"))
        assert list(found.results.values()) == [page.result for page in pages if page.result]
        assert history.record(run_id).settings["preset"] == "tiny"


def test_an_output_is_compared_with_a_run_and_with_another_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other output is of moved pages, in other shards."""
    out, other, location = (str(tmp_path / name) for name in ("out", "other", "h"))
    made(tmp_path / "out", {3: "planted"})
    made(tmp_path / "other", {1: a_result("other")}, root="/moved", shards=2, shard_pages=5)
    with RunDirectory.create(tmp_path / "h", record("run-1", backends=("fast",))) as writer:
        for number in {*range(PAGES)} - {3}:
            result = replace(a_result("other" if number == 1 else TEXT), backend="fast")
            writer.add(PageResults(f"{number:02d}.png", results=[result]))
    pages = {f"{number:02d}.png": "identical" for number in range(PAGES) if number != 3}
    for names in ((out, "run-1"), ("run-1", out), (out, other), (other, out)):
        assert main(["compare", *names, "--history", location, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        verdicts = {row["image"]: row["verdict"] for row in document["pages"] if "absent" not in row["kinds"]}
        failed = {"03.png": "not_comparable"} if other in names else {}
        assert verdicts == pages | {"01.png": "differs"} | failed
    made(tmp_path / "half", shards=2)
    assert main(["compare", out, str(tmp_path / "half")]) == 2
    assert "8 of 10 pages are read" in " ".join("".join(capsys.readouterr()).split())


def test_outputs_of_any_size_are_compared_some_shards_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "a", {3: "planted", 9: a_result("nine")})
    made(tmp_path / "b", {1: a_result("other")})
    found = []
    for at_once in (2000, 4):
        monkeypatch.setattr(compare_runs, "_PAGES_AT_ONCE", at_once)
        assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 1
        found.append(json.loads(capsys.readouterr().out))
        found[-1]["pages"].sort(key=lambda row: row["image"])
    whole, parts = found
    assert (parts["passed"], parts["failed"]) == (7, 3) and len(parts["pages"]) == PAGES
    assert parts["headline"] == "3 of 10 pages changed, 3 fail" and parts["stages"] == []
    assert {**whole, "headline": "", "stages": []} == {**parts, "headline": ""}
