"""Two outputs page by page, shards on several processes: what is held is what is in flight, and the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import differences
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import Tolerance, Verdict
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.runs.recording import Recording
from dsocr_core.runs.results import Key, Readings, compared
from dsocr_core.runs.rows import parity_row
from dsocr_core.runs.schema import rows_to_table
from dsocr_core.runs.sharded import Marker, PageReading, parquet
from dsocr_core.runs.storage import Store
from dsocr_core.settings import Settings

MOST_WORST = 1000
"""Pages that a comparison names; all are in its files."""
FILES = "parity"
"""Folder of a comparison's directory: a Parquet file a shard, rows of `schema.TABLES["parity"]`."""
_RANK: Mapping[Verdict, int] = {"not_comparable": 0, "differs": 1, "within_tolerance": 2, "identical": 3}
Row = Mapping[str, Any]


class OtherPages(DsocrError):
    """Two outputs that are not of the same pages; names the first that is another."""


# --- a shard ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardOf:
    """A shard of an output, for another process."""

    location: str
    marker: Marker
    name: str | None = None
    """Name of its backend, where it is not the one that is recorded."""

    def pages(self) -> list[PageReading]:
        """Raises OutputError, StorageError."""
        return Output(self.location).pages(self.marker)


def comparisons(a: ShardOf, b: ShardOf, tolerance: Tolerance) -> Iterator[tuple[PageReading, Comparison]]:
    """Every page, as A has it, with the comparison. Raises OtherPages, OutputError, StorageError."""
    pages = (a.pages(), b.pages())
    if len(pages[0]) != len(pages[1]):
        raise OtherPages(f"{a.location} and {b.location}: shard {a.marker.index} has other pages")
    for ours, theirs in zip(*pages, strict=True):
        if _file_name(ours) != _file_name(theirs):
            raise OtherPages(
                f"page {ours.number} is {ours.name} in {a.location} and {theirs.name} in {b.location}: "
                "give outputs of the same inputs"
            )
        yield ours, compared(_side(ours, a.name), _side(theirs, b.name), tolerance)


def _file_name(page: PageReading) -> str:
    """Give what has to be the same on both sides; folders may have moved."""
    return page.name.rpartition("/")[2]


def _side(page: PageReading, name: str | None) -> tuple[Readings, Key]:
    key = (page.name, name)
    if page.result is None:
        request = OcrRequest.imported(Path(page.path), page.name)
        return Readings(failures={key: page.error or page.status}, requests={key: request}), key
    result = replace(page.result, backend=name or page.result.backend)
    return Readings({key: result}, requests={key: result.request}), key


def badness(row: Row) -> tuple[int, float, int]:
    """Sorts the worst page first, equal ones by number."""
    return _RANK[row["verdict"]], -(row["character_error_rate"] or 0.0), row["number"]


def compare_shard(a: ShardOf, b: ShardOf, tolerance: Tolerance, into: str | None) -> list[Row]:
    """Rows of parity of a shard's pages, with their numbers; a file of them goes into the store at `into`.

    Raises OtherPages, OutputError, StorageError.
    """
    rows, numbers = [], []
    for page, comparison in comparisons(a, b, tolerance):
        report, name = comparison.report, page.name
        rows.append(parity_row(name, report, comparison.differences))
        numbers.append(page.number)
    table = rows_to_table("parity", "", rows)
    if into is not None:
        Store(into).put(f"{a.marker.index:09d}.parquet", parquet(table))
    found = table.drop_columns("run_id").to_pylist()
    return [{**row, "number": number} for row, number in zip(found, numbers, strict=True)]


# --- two outputs --------------------------------------------------------------------------------


def settings_that_differ(a: Output, b: Output) -> list[str]:
    """List what both were made with, where it is not the same: "infer.max_new_tokens: 20 and 40".

    Raises DsocrError where there is no run, OtherPages for other shards.
    """
    runs = (a.run(), b.run())
    sizes = [run["cluster"]["shard_pages"] for run in runs]
    if len(set(sizes)) > 1:
        where = [f"{each.store.location} ({size})" for each, size in zip((a, b), sizes, strict=True)]
        raise OtherPages(
            f"shards have other numbers of pages in {' and '.join(where)}: read both with the same "
            "--shard-pages"
        )
    return differences(*runs)


def _pairs(a: Output, b: Output) -> Iterator[tuple[Marker | None, Marker | None]]:
    """By index the markers of both, None where a side has not read the shard."""
    names = [{int(shard[:9]): name for shard, name in each.marker_names().items()} for each in (a, b)]
    for index in sorted(names[0].keys() | names[1].keys()):
        of_a, of_b = (each.get(index) for each in names)
        yield a.marker(of_a) if of_a else None, b.marker(of_b) if of_b else None


@dataclass
class Compared:
    """Outcome of two outputs."""

    verdicts: Counter[str] = field(default_factory=Counter)
    error_rates: float = 0.0
    """Sum of the character error rates of pages that both sides read."""
    read_by_both: int = 0
    tokens_known: int = 0
    tokens_equal: int = 0
    worst: list[Row] = field(default_factory=list)
    """Pages that are not identical, rows of parity with their number, worst first."""
    only_a: int = 0
    """Pages of shards that B has not read."""
    only_b: int = 0
    neither: int = 0
    """Pages that are planned, and that no side has read."""

    def add(self, rows: Iterable[Row]) -> None:
        """Take in a shard; of the worst pages `MOST_WORST` stay."""
        for row in rows:
            self.verdicts[row["verdict"]] += 1
            if row["character_error_rate"] is not None:
                self.error_rates += row["character_error_rate"]
                self.read_by_both += 1
            self.tokens_known += row["tokens_equal"] is not None
            self.tokens_equal += row["tokens_equal"] is True
            if row["verdict"] != "identical":
                self.worst.append(row)
        self.worst = sorted(self.worst, key=badness)[:MOST_WORST]

    @property
    def pages(self) -> int:
        return self.verdicts.total()

    @property
    def error_rate(self) -> float | None:
        """Mean of the pages that both sides read; None without one."""
        return self.error_rates / self.read_by_both if self.read_by_both else None

    @property
    def passed(self) -> int:
        return self.verdicts["identical"] + self.verdicts["within_tolerance"]

    @property
    def failed(self) -> int:
        return self.pages - self.passed + self.only_a + self.only_b + self.neither


def compare_outputs(
    a: Output, b: Output, tolerance: Tolerance, executor: Executor, into: str | None = None,
    on_shard: Callable[[Compared], None] = lambda compared: None, cancel: CancelToken | None = None,
) -> Compared:  # fmt: skip
    """Compare all that both have read; files of rows go into a store at `into`.

    Raises OtherPages, OutputError, StorageError, Cancelled, DsocrError where a worker is lost.
    """
    found, both = Compared(), []
    for of_a, of_b in _pairs(a, b):
        if of_a is not None and of_b is not None:
            both.append((ShardOf(a.store.location, of_a), ShardOf(b.store.location, of_b), tolerance, into))
        else:
            found.only_a += of_a.pages if of_a else 0
            found.only_b += of_b.pages if of_b else 0
    results = executor.map(compare_shard, *zip(*both, strict=True)) if both else iter(())
    try:
        for rows in results:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            found.add(rows)
            on_shard(found)
    except BrokenExecutor as error:
        raise DsocrError(f"a worker has ended ({one_line(error)}); give the same command again") from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    planned = max(read_status(output)[0].pages for output in (a, b))
    found.neither = planned - found.pages - found.only_a - found.only_b
    return found


def record_worst(settings: Settings, a: Output, b: Output, worst: Sequence[Row], command: str) -> str | None:
    """Write a comparison's worst pages as a run that Review opens on; its id. Raises DsocrError."""
    numbers = {row["number"] for row in worst}
    size = a.run()["cluster"]["shard_pages"]
    shards, names = {number // size for number in numbers}, settings.side_names
    with Recording(settings, command) as recorder:
        for of_a, of_b in _pairs(a, b):
            if of_a is not None and of_b is not None and of_a.index in shards:
                sides = (ShardOf(a.store.location, of_a, names[0]), ShardOf(b.store.location, of_b, names[1]))
                for page, comparison in comparisons(*sides, settings.tolerance):
                    if page.number in numbers:
                        recorder.add(page.name, comparison)
    return recorder.id
