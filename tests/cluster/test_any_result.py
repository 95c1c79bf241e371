"""Any result equals itself, in every field, after a shard, in a directory and in an object store."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsocr_core.base.visible import name_text
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.shards import PageRef
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.sharded import PageReading, read_shard, shard_files
from dsocr_core.settings import Settings
from tests.support.any_results import any_result
from tests.support.made_up_output import committed, planned

EXAMPLES = settings(max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
SEEDS = st.integers(0, 2**32)
TOGETHER = 100
"""Pages of an example: 20 examples of 100 make 2,000."""


def drawn(seed: int) -> list[PageReading]:
    """Pages of any kind: one is blank, one has 5,000 boxes, and some failed."""
    found = []
    for number in range(TOGETHER):
        result = any_result(seed + number, {0: 0, 1: 5000 if seed % 10 == 0 else 50}.get(number, seed % 4))
        page = PageReading(number, f"page {number}", name_text(result.request.image), result)
        if number % 20 == 7:
            page = PageReading(number, page.name, page.path, error="why", quarantined=number % 40 == 7)
        found.append(page)
    return found


def assert_equal(found: list[PageReading], given: list[PageReading]) -> None:
    """In every field: two requests are equal whatever their files are, so these are held by themselves."""
    for mine, theirs in zip(found, given, strict=True):
        for field in fields(OcrResult) if theirs.result is not None else ():
            assert getattr(mine.result, field.name) == getattr(theirs.result, field.name), field.name
        assert mine == theirs
        if mine.result is not None and theirs.result is not None:
            assert mine.result.request.file == theirs.result.request.file


@EXAMPLES
@given(SEEDS)
def test_any_result_is_read_back_from_a_shard(seed: int) -> None:
    pages = drawn(seed)
    assert_equal(read_shard(*shard_files(pages), range(TOGETHER)), pages)


@pytest.mark.parametrize("place", ["directory", "memory"])
def test_any_result_is_read_back_from_an_output(tmp_path: Path, place: str) -> None:
    for seed in (1, 10):
        name = str(tmp_path / str(seed)) if place == "directory" else f"memory://{tmp_path.name}/{seed}"
        output, pages = Output(name), drawn(seed)
        job = Job.of(Settings(preset="tiny"), ("x",), TOGETHER)
        files = [f"{page.path}/{page.number}" for page in pages]
        [shard] = planned(output, job, files)

        def read(page: PageRef, pages: list[PageReading] = pages) -> PageReading:
            return pages[page.number]

        assert_equal(output.pages(committed(output, shard, read)), pages)
