"""Two outputs page by page: the verdicts of parity, what is named first, and what only one side has."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.compare import Compared, compare_outputs, settings_that_differ
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.sharded import OutputError, PageReading
from dsocr_core.settings import Settings
from tests.cluster.made_up_output import a_result, committed, planned

PAGES = 10
WORDS = "The quick brown fox jumps over the lazy dog"
TEXT = f"<|ref|>text<|/ref|><|det|>[[10, 10, 500, 60]]<|/det|>\n{WORDS}"
Special = Mapping[int, OcrResult | str]
"""Pages that are read differently, or that failed with that error."""


def made(
    folder: Path, special: Special | None = None, settings: Settings | None = None, shards: int = 3,
    shard_pages: int = 4, root: str = "/data", first: int = 0,
) -> Output:  # fmt: skip
    """An output with as many of its shards committed."""
    output = Output(str(folder))
    job = Job.of(settings or Settings(preset="tiny"), (root,), shard_pages)

    def read(page: PageRef) -> PageReading:
        found = (special or {}).get(page.number, a_result(TEXT))
        return page.failed(found) if isinstance(found, str) else page.read(found)

    files = [f"{root}/{first + number:02d}.png" for number in range(PAGES)]
    for shard in planned(output, job, files)[:shards]:
        committed(output, shard, read)
    return output


def compared(a: Output, b: Output, cancel: threading.Event | None = None) -> Compared:
    with ThreadPoolExecutor(2) as executor:
        return compare_outputs(a, b, Tolerance(), executor, cancel or threading.Event())


def test_every_verdict_is_that_of_parity_and_the_worst_comes_first(tmp_path: Path) -> None:
    """A letter of 43 is above the tolerance; a text without boxes is within it."""
    special = {
        1: a_result(TEXT.replace("quick brown fox jumps over the lazy dog", "slow")),
        2: a_result(TEXT.replace("lazy", "lasy")),
        3: a_result(WORDS, token_ids=None, boxes_known=False),
        5: "planted",
    }
    found = compared(made(tmp_path / "a"), made(tmp_path / "b", special, root="/moved"))
    rows = {row["number"]: row for row in found.worst}
    assert [(number, row["verdict"]) for number, row in rows.items()] == [
        (5, "not_comparable"), (1, "differs"), (2, "differs"), (3, "within_tolerance"),
    ]  # fmt: skip
    assert rows[3]["reasons"] == ["boxes not known: of B"]
    assert rows[5]["reasons"] == ["could not be read: B: planted"]
    assert rows[2]["character_error_rate"] == pytest.approx(1 / 43)
    assert rows[2]["first_divergence"] == TEXT.index("lazy") + 2
    assert (found.passed, found.failed, found.verdicts["identical"]) == (7, 3, 6)


@pytest.mark.parametrize("shards_of_a", [3, 1], ids=["one side", "neither"])
def test_pages_that_a_side_has_not_read_are_counted_and_fail(tmp_path: Path, shards_of_a: int) -> None:
    found = compared(made(tmp_path / "a", shards=shards_of_a), made(tmp_path / "b", shards=1))
    assert (found.pages, found.not_compared, found.failed) == (4, 6, 6)


def test_outputs_of_other_pages_or_other_shards_are_refused(tmp_path: Path) -> None:
    a = made(tmp_path / "a")
    with pytest.raises(DsocrError, match=r"a \(4\) and .*/5 \(5\): read both with the same --shard-pages"):
        settings_that_differ(a, made(tmp_path / "5", shard_pages=5))
    with pytest.raises(DsocrError, match=r"is /data/0\d.png and /data/10\d.png: .*same inputs"):
        compared(a, made(tmp_path / "b", first=100))


def test_damaged_results_are_named_and_cancel_ends_it_between_shards(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        compared(a, b, cancel)
    marker = next(iter(b.markers(b.marker_names().values())))
    with (tmp_path / "b" / marker.file).open("ab") as file:
        file.write(b"x")
    with pytest.raises(OutputError, match=r"damaged; remove done/.* to read it again"):
        compared(a, b)


def test_of_many_pages_the_worst_stay() -> None:
    whole, row = Compared(), {"verdict": "differs", "tokens_equal": False}
    for first in range(0, 2000, 10):
        rates = [(number, (number * 37 % 2000) / 2000) for number in range(first, first + 10)]
        whole.add([row | {"number": number, "character_error_rate": rate} for number, rate in rates])
    assert [row["character_error_rate"] for row in whole.worst[:2]] == [0.9995, 0.999]
    assert (len(whole.worst), whole.pages, whole.mean_error_rate) == (1000, 2000, pytest.approx(0.49975))
