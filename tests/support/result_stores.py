"""Each way that a result takes to a disk and back, by name: one test holds all of them to the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from dsocr_core.base.sanitise import name_text
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageReading
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.export import export_runs
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import Recording
from dsocr_core.runs.result_cache import find_result, save_results
from dsocr_core.runs.results import PageResults, readings
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings
from tests.cluster.made_up_output import committed, pages_of_rows, planned
from tests.support.made_up_runs import record

Results = Mapping[tuple[str, str | None], OcrResult]
"""By page and backend."""
Store = Callable[[Path, Results], Results]
"""Writes results below a directory, and reads them back."""


def history(root: Path, given: Results) -> Results:
    with RunDirectory.create(root / "history", record()) as writer:
        for (page, _), result in given.items():
            writer.add(PageResults(page, results=[result]))
        writer.add(PageResults.failed("failed", ["eager"], "why"))
    with History(root / "history") as opened:
        return readings(opened, "run-1").results


def exported(root: Path, given: Results) -> Results:
    """Through a zip into another history."""
    history(root, given)
    with History(root / "history") as opened:
        export_runs(opened, ["run-1"], root / "out.zip")
    return _imported(root, root / "out.zip")


def run_directory(root: Path, given: Results) -> Results:
    """What `--out` leaves, imported."""
    with Recording(Settings(), out=root / "out", save=False) as recorder:
        for (page, backend), result in given.items():
            recorder.add(page, Comparison(result.request, result), keys={str(backend): "key"})
    return _imported(root, root / "out")


def _imported(root: Path, path: Path) -> Results:
    with History(root / "elsewhere") as opened:
        report = import_paths(opened, [path])
        assert report.skipped == []
        return readings(opened, report.imported[0].run_id).results


def cache(root: Path, given: Results) -> Results:
    found = {}
    for number, (key, result) in enumerate(given.items()):
        save_results(root / "cache", f"{number}", {f"{number}": result})
        recorded = find_result(f"{number}", [root / "cache" / "runs" / f"{number}"])
        assert recorded is not None
        found[key] = recorded.result
    return found


def cluster(root: Path, given: Results) -> Results:
    """In a shard of a cluster's output, before a page that failed."""
    pages = [
        PageReading(number, page, name_text(result.request.image), result)
        for number, ((page, _), result) in enumerate(given.items())
    ]
    pages.append(PageReading(len(pages), "failed", "failed.png", error="why", quarantined=True))
    output, job = Output(str(root / "out")), Job.of(Settings(preset="tiny"), ("x",), len(pages))
    [shard] = planned(output, job, [f"{page.path}/{page.number}" for page in pages])
    found = pages_of_rows(output.rows(committed(output, shard, lambda page: pages[page.number])))
    assert found == pages
    # A shard has the file of a page alone: several pages in a prompt are for one process.
    return {
        key: replace(page.result, request=replace(page.result.request, more_files=of.request.more_files))
        for page, (key, of) in zip(found, given.items(), strict=False)
        if page.result is not None
    }


STORES: dict[str, Store] = {
    "history": history, "zip": exported, "run directory": run_directory, "result cache": cache,
    "output of a cluster": cluster,
}  # fmt: skip
