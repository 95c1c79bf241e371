"""What is to be read: in a stable order, as a stream, with every refusal on one line."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.cluster.listing import ListingError, list_files


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
    file = tmp_path / "pages.txt"
    file.write_text("# pages\nb.png\n\n/abs/a.png\ns3://bucket/c.pdf\n  d.png  \n")
    expected = [f"{tmp_path}/b.png", "/abs/a.png", "s3://bucket/c.pdf", f"{tmp_path}/d.png"]
    assert list(list_files([str(file)])) == expected


@pytest.mark.parametrize("column", ["path", "url"])
def test_a_parquet_manifest_has_a_column_of_paths(tmp_path: Path, column: str) -> None:
    paths = [f"s3://bucket/{number}.png" for number in range(5)]
    pq.write_table(pa.table({"other": [1] * 5, column: paths}), tmp_path / "m.parquet")
    assert list(list_files([str(tmp_path / "m.parquet")])) == paths


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: str(folder / "none.png"), "no such file"),
        (lambda folder: str(folder), "no images or PDFs"),
        (lambda folder: str(folder / "none.txt"), "cannot be read"),
        (lambda folder: _long_line(folder), "longer than"),
        (lambda folder: _no_column(folder), "no column path or url"),
        (lambda folder: "nonsense://x/", "cannot be listed"),
    ],
)
def test_what_cannot_be_listed_is_named(tmp_path: Path, make, words: str) -> None:  # type: ignore[no-untyped-def]
    given = make(tmp_path)
    with pytest.raises(ListingError, match=words) as caught:
        list(list_files([given]))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(given)


def _long_line(folder: Path) -> str:
    (folder / "long.txt").write_text("x" * 100_000)
    return str(folder / "long.txt")


def _no_column(folder: Path) -> str:
    pq.write_table(pa.table({"page": ["a.png"]}), folder / "m.parquet")
    return str(folder / "m.parquet")


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
