"""What is to be read: in a stable order, as a stream, the same when a run goes on; refusals on one line."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import Shard, cut, list_files
from dsocr_core.settings import Settings
from tests.cluster.made_up_output import a_result, committed, planned


def test_a_folder_is_listed_with_all_below_it_in_one_order(tmp_path: Path) -> None:
    names = ["b.png", "a.JPG", "z/2.pdf", "z/1.png", "c/x.webp", ".hidden.png", "notes.txt", ".git/a.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    expected = ["a.JPG", "b.png", "c/x.webp", "z/1.png", "z/2.pdf"]
    assert list(list_files([str(tmp_path)])) == [str(tmp_path / name) for name in expected]


def test_a_manifest_is_read_in_its_own_order_and_memory_does_not_grow_with_it(tmp_path: Path) -> None:
    file, names = tmp_path / "pages.txt", ["/data/scans/page.png\n"] * 60_000
    file.write_text("# pages\nb.png\n\n/abs/a.png\ns3://bucket/c.pdf\n  d.png  \n" + "".join(names))
    tracemalloc.start()
    try:
        listed = list_files([str(file)])
        first, count = [next(listed) for _ in range(4)], sum(1 for _ in listed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first == [f"{tmp_path}/b.png", "/abs/a.png", "s3://bucket/c.pdf", f"{tmp_path}/d.png"]
    assert count == 60_000 and peak < 1_000_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.png", "no such file"), ("", "no images or PDFs"), ("none.txt", "cannot be read"),
        ("long.txt", "longer than"), ("nonsense://x/", "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_listed_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "long.txt").write_text("x" * 100_000)
    given = name if "://" in name else str(tmp_path / name)
    with pytest.raises(DsocrError, match=words) as caught:
        list(list_files([given]))
    assert "\n" not in str(caught.value) and str(caught.value).startswith(given)


# --- shards ---------------------------------------------------------------------------------------

PDFS = {"b.pdf": 5, "d.pdf": 3, "broken.pdf": None}
FILES = ["a.png", "b.pdf", "broken.pdf", "c.png", "d.pdf"]


def shards_of(**settings: Any) -> list[Shard]:
    job = Job.of(Settings(preset="tiny", **settings), ("folder",), 2)
    return list(cut(job, FILES, PDFS.__getitem__))


def test_pdfs_become_pages_and_pages_shards() -> None:
    shards = shards_of()
    of_b, of_d = ([f"{name}#{page + 1}" for page in range(PDFS[name] or 0)] for name in ("b.pdf", "d.pdf"))
    pages = [page for shard in shards for page in shard.pages]
    assert [page.source for page in pages] == ["a.png", *of_b, "broken.pdf", "c.png", *of_d]
    assert [page.number for page in pages] == list(range(11))
    assert [len(shard.pages) for shard in shards] == [2] * 5 + [1] and shards_of() == shards
    assert not {shard.key for shard in shards} & {shard.key for shard in shards_of(max_megapixels=9.0)}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["z.png", *FILES[1:]], r"page 1 was a.png, now it is z.png; give another --out"),
        (FILES[:4], "page 5 was d.pdf#1, now it is nothing"),
        ([*FILES, "e.png", "f.png"], "page 7 was nothing, now it is f.png"),
    ],
)
def test_inputs_that_have_changed_are_named(tmp_path: Path, files: list[str], words: str) -> None:
    output, job = Output(str(tmp_path)), Job.of(Settings(preset="tiny"), ("folder",), 2)
    for shard in planned(output, job, [*FILES, "e.png"]):
        committed(output, shard, lambda page: page.read(a_result("text")))
    with pytest.raises(DsocrError, match=words):
        planned(output, job, files)
