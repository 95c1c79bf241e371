"""A complete output is a run: imported as it is, and compared with another run by the code of all runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.cli.main import main
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef
from dsocr_core.models.stages import Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.results import PageResults, readings
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.sharded import PageReading
from dsocr_core.settings import Settings
from tests.cluster.made_up_output import a_result, committed, planned
from tests.cluster.made_up_output import readings as pages_of
from tests.support.made_up_runs import record

TIMES = [(Stage.PREFILL, 2.0), (Stage.DECODE, 3.0)]
FILES = ["/data/a/0.png", "/data/b/1.png", "/data/b/book.pdf", "/data/b/2.png", "/data/b/3.png"]
NAMES = ["a/0.png", "b/1.png", "b/book.pdf#1", "b/2.png", "b/3.png"]


def read(page: PageRef) -> PageReading:
    if page.number == 3:
        return page.failed("planted")
    return page.read(a_result(f"page {page.number}", TIMES, environment={"device_name": "one"}))


def an_output(folder: Path, shards: int = 3) -> Output:
    output = Output(str(folder))
    job = Job.of(Settings(preset="tiny", a="eager"), ("/data",), 2)
    for shard in planned(output, job, FILES)[:shards]:
        committed(output, shard, read)
    return output


def test_a_complete_output_is_imported_as_it_is_and_another_one_refused(tmp_path: Path) -> None:
    output = an_output(tmp_path / "out")
    an_output(tmp_path / "half", shards=2)
    with History(tmp_path / "h") as history:
        report = import_paths(history, [tmp_path / "out"])
        assert ([run.run_id for run in report.imported], report.skipped) == ([output.run()["id"]], [])
        assert [run.run_id for run in import_paths(history, [tmp_path / "out"]).known] == history.run_ids()
        [skipped] = import_paths(history, [tmp_path / "half"]).skipped
        assert skipped.reason.startswith("4 of 5 pages are read") and not history.problems
        [run_id] = history.run_ids()
        found = readings(history, run_id)
        assert list(found.requests) == [(name, "eager") for name in NAMES]
        assert found.failures == {("b/2.png", "eager"): "planted"}
        given = [page.result for page in pages_of(str(tmp_path / "out")) if page.result]
        assert list(found.results.values()) == given
        assert history.record(run_id).settings["preset"] == "tiny"


def test_an_output_is_compared_with_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, location = an_output(tmp_path / "out"), str(tmp_path / "h")
    with RunDirectory.create(tmp_path / "h", record("run-1", backends=("fast",))) as writer:
        for number, name in enumerate(NAMES):
            result = a_result("other" if number == 1 else f"page {number}")
            if number != 3:
                writer.add(PageResults(name, results=[replace(result, backend="fast")]))
    for names in ((output.store.location, "run-1"), ("run-1", output.store.location)):
        assert main(["compare", *names, "--history", location, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        verdicts = {row["image"]: row["verdict"] for row in document["pages"] if "absent" not in row["kinds"]}
        expected = {name: "identical" for number, name in enumerate(NAMES) if number != 3}
        assert verdicts == expected | {"b/1.png": "differs"}
