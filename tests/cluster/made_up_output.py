"""Outputs of runs over a cluster, without a cluster: as a test wants them, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageReading, PageRef, Shard, cut
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrRequest, OcrResult, StageTiming
from dsocr_core.runs.results import result_of
from dsocr_core.runs.sharded import Marker
from tests.support.results import make_result

Special = Mapping[int, str]
"""What some pages do instead of being read."""


def a_result(text: str, times: Sequence[tuple[Stage, float]] = (), **more: Any) -> OcrResult:
    """What an engine reads of a page of 100 x 80 pixels."""
    made = make_result(text, image_size=(100, 80), token_ids=tuple(text.encode()))
    timings = tuple(StageTiming(stage, ms) for stage, ms in times)
    request = OcrRequest(Path("x.png"), preset="tiny")
    return replace(made, **{"request": request, "timings": timings, "environment": {}} | more)


def planned(output: Output, job: Job, files: Sequence[str]) -> list[Shard]:
    """Begin an output, and list all of it; PDFs have a page."""
    output.begin(job)
    shards = list(cut(job, files, lambda path: 1))
    list(output.unread(shards, output.markers()))
    return shards


def committed(
    output: Output, shard: Shard, read: Callable[[PageRef], PageReading], worker: str = "w"
) -> Marker:
    """The marker of a shard that is committed with what `read` says of its pages."""
    marker = output.write(shard.name, [read(page) for page in shard.pages], worker, (0.0, 1.0))
    output.commit(marker)
    return marker


def readings(location: str) -> list[PageReading]:
    """Every visible page in order."""
    output, found = Output(location), list[PageReading]()
    shard_pages = int(output.run()["cluster"]["shard_pages"])
    for marker in output.markers():
        found += pages_of_rows(output.rows(marker), marker.index * shard_pages)
    return found


def pages_of_rows(rows: pa.Table, first: int = 0) -> list[PageReading]:
    """The pages of a shard's rows, whose numbers begin with the first."""
    found = []
    for number, row in enumerate(rows.to_pylist(), first):
        lost = any(fact["name"] == "quarantined" for fact in row["environment"] or ())
        found.append(PageReading(number, row["page"], row["path"], result_of(row), row["error"], lost))
    return found


def check_exactly_once(location: str, count: int, special: Special | None = None) -> None:
    """Every page once, with its own text; those that are special as they are, and nothing half-written."""
    found, output = readings(location), Output(location)
    assert [Path(page.name).stem for page in found] == [f"{number:05d}" for number in range(count)]
    for page in found:
        if page.number not in (special or {}):
            assert page.result is not None and page.result.text_raw == f"page {page.number}", page
    assert output.clear_attempts() == 0, "files that no marker names are left"
    assert (output.document("plan/complete.json") or {})["pages"] == count
