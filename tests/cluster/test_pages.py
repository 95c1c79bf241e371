"""What is to be read: in a stable order, as a stream, planned first, every refusal on one line."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.cluster.job import Job, OtherJob
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import ListingError, Shard, list_files, planned_shards
from dsocr_core.runs.sharded import COMPLETE
from dsocr_core.settings import Settings


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_a_folder_is_listed_with_all_below_it_in_one_order(tmp_path: Path) -> None:
    names = ["b.png", "a.JPG", "z/2.pdf", "z/1.png", "c/x.webp", ".hidden.png", "notes.txt", ".git/a.png"]
    touch(*(tmp_path / name for name in names))
    expected = ["a.JPG", "b.png", "c/x.webp", "z/1.png", "z/2.pdf"]
    assert list(list_files([str(tmp_path)])) == [str(tmp_path / name) for name in expected]


def test_a_manifest_is_read_in_its_own_order(tmp_path: Path) -> None:
    (tmp_path / "pages.txt").write_text("# pages\nb.png\n\n/abs/a.png\ns3://bucket/c.pdf\n  d.png  \n")
    expected = [f"{tmp_path}/b.png", "/abs/a.png", "s3://bucket/c.pdf", f"{tmp_path}/d.png"]
    assert list(list_files([str(tmp_path / "pages.txt")])) == expected
    for column in ("path", "url"):
        pq.write_table(pa.table({"other": [1] * 4, column: expected}), tmp_path / f"{column}.parquet")
        assert list(list_files([str(tmp_path / f"{column}.parquet")])) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.png", "no such file"), ("", "no images or PDFs"), ("none.txt", "cannot be read"),
        ("long.txt", "longer than"), ("m.parquet", "no column path or url"),
        ("nonsense://x/", "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_listed_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "long.txt").write_text("x" * 100_000)
    pq.write_table(pa.table({"page": ["a.png"]}), tmp_path / "m.parquet")
    given = name if "://" in name else str(tmp_path / name)
    with pytest.raises(ListingError, match=words) as caught:
        list(list_files([given]))
    assert "\n" not in str(caught.value) and str(caught.value).startswith(given)


def test_memory_does_not_grow_with_a_manifest(tmp_path: Path) -> None:
    file = tmp_path / "many.txt"
    with file.open("w") as handle:
        for number in range(60_000):
            handle.write(f"/data/scans/batch-{number // 1000:05d}/page-{number:08d}.png\n")
    tracemalloc.start()
    try:
        count = sum(1 for _ in itertools.islice(list_files([str(file)]), 60_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 60_000
    assert peak < 1_000_000


# --- the plan -------------------------------------------------------------------------------------

PDFS = {"b.pdf": 5, "d.pdf": 3, "broken.pdf": None}
FILES = ["a.png", "b.pdf", "broken.pdf", "c.png", "d.pdf"]


def job_of(shard_pages: int = 2, **settings: Any) -> Job:
    return Job.of(Settings(preset="tiny", **settings), ("folder",), shard_pages)


def plan(output: Output, files: Sequence[str], job: Job | None = None) -> tuple[list[Shard], list[str]]:
    """The shards, and the PDFs that were counted."""
    counted: list[str] = []

    def count(path: str) -> int | None:
        counted.append(path)
        return PDFS[path]

    return list(planned_shards(output, job or job_of(), files, count)), sorted(counted)


def test_pdfs_become_pages_and_pages_shards_planned_before_they_are_read(tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    shards, counted = plan(output, FILES)
    assert counted == ["b.pdf", "broken.pdf", "d.pdf"]
    pages = [page.source for shard in shards for page in shard.pages]
    of_b, of_d = ([f"{name}#{page + 1}" for page in range(PDFS[name] or 0)] for name in ("b.pdf", "d.pdf"))
    assert pages == ["a.png", *of_b, "broken.pdf", "c.png", *of_d]
    assert [page.number for shard in shards for page in shard.pages] == list(range(11))
    assert [len(shard.pages) for shard in shards] == [2] * 5 + [1]
    assert output.document(COMPLETE) == {"pages": 11, "shards": 6}
    assert [page for _, page in output.plan_part("00000000.parquet")] == [p for s in shards for p in s.pages]
    assert list(output.planned([4, 1], job_of())) == [shards[1], shards[4]]


def test_a_run_that_goes_on_has_the_same_shards_and_counts_nothing_again(tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    first, _ = plan(output, FILES)
    assert plan(output, FILES) == (first, ["broken.pdf"])
    (tmp_path / COMPLETE).unlink()  # killed before its end: the last file may have lost some of its pages
    assert plan(output, FILES) == (first, ["broken.pdf", "d.pdf"])
    other, _ = plan(Output(str(tmp_path / "other")), FILES, job_of(max_megapixels=9.0))
    assert not {shard.key for shard in first} & {shard.key for shard in other}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["z.png", *FILES[1:]], r"page 1 was a.png, now it is z.png; give another --out"),
        (FILES[:4], "page 9 was d.pdf#1, now it is nothing"),
        ([*FILES, "e.png"], "page 12 was nothing, now it is e.png"),
        ([f"{number:03d}.png" for number in range(64)], "page 65 was 064.png, now it is nothing"),
    ],
)
def test_other_inputs_are_named(tmp_path: Path, files: list[str], words: str) -> None:
    """Those of one part of the plan, and a plan of three parts that lost its end."""
    output, many = Output(str(tmp_path)), [f"{number:03d}.png" for number in range(70)]
    before = many if len(files) > len(PDFS) + 3 else FILES
    shards, _ = plan(output, before)
    assert len(output.plan_parts()) == (3 if before is many else 1) and plan(output, before)[0] == shards
    with pytest.raises(OtherJob, match=words):
        plan(output, files)
