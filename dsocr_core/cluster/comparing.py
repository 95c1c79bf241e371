"""Two outputs pair by pair, shards on any executor: what is held is what is in flight, and the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import differences
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import StatusReader
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import Tolerance, Verdict
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.results import Key, Readings, compared
from dsocr_core.runs.rows import not_compared_row, parity_row
from dsocr_core.runs.schema import rows_to_table
from dsocr_core.runs.sharded import Marker, PageReading, parquet
from dsocr_core.runs.storage.store import Store
from dsocr_core.settings import Settings

T = TypeVar("T")
_POLL_S = 0.5


def spread(
    do: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    executor: Executor,
    in_flight: int,
    cancel: CancelToken | None = None,
) -> Iterator[T]:
    """Yield what `do` gives for each of `calls`, as they end. Raises what it raises, Cancelled,
    DsocrError.
    """
    waiting: set[Future[T]] = set()

    def ended(most: int) -> Iterator[T]:
        """Until no more than so many are in flight."""
        while len(waiting) > most:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            done, _ = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                waiting.discard(future)
                yield future.result()

    try:
        for arguments in calls:
            yield from ended(in_flight - 1)
            waiting.add(executor.submit(do, *arguments))
        yield from ended(0)
    except (BrokenExecutor, CancelledError) as error:
        raise DsocrError(f"a worker has ended ({one_line(error)}); give the same command again") from error
    finally:
        for future in waiting:
            future.cancel()


MOST_WORST = 1000
"""Pages that a comparison names; all are in its files."""
FILES = "parity"
"""Folder of a comparison's directory: a Parquet file a shard, rows of `schema.TABLES["parity"]`."""
_MARKERS = 512
"""Read at a time."""
_RANK: Mapping[Verdict, int] = {"not_comparable": 0, "differs": 1, "within_tolerance": 2, "identical": 3}
Row = Mapping[str, Any]


class OtherPages(DsocrError):
    """Two outputs that are not of the same pages; names the first that is another."""


# --- a shard ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardOf:
    """A shard of an output, as a worker is told of it."""

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
        if _name(ours) != _name(theirs):
            raise OtherPages(
                f"page {ours.number} is {ours.name} in {a.location} and {theirs.name} in {b.location}: "
                "give outputs of the same inputs"
            )
        yield ours, compared(_side(ours, a.name), _side(theirs, b.name), tolerance)


def _name(page: PageReading) -> str:
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
        rows.append(
            not_compared_row(name, comparison.reasons) if report is None else parity_row(name, report)
        )
        numbers.append(page.number)
    table = rows_to_table("parity", "", rows)
    if into is not None:
        Store(into).put(f"{a.marker.index:09d}.parquet", parquet(table))
    found = table.drop_columns("run_id").to_pylist()
    return [{**row, "number": number} for row, number in zip(found, numbers, strict=True)]


# --- an output ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two outputs of the same pages."""

    a: Output
    b: Output
    tolerance: Tolerance

    def settings_that_differ(self) -> list[str]:
        """List what both were made with, where it is not the same: "infer.max_new_tokens: 20 and 40".

        Raises DsocrError where there is no run, OtherPages for other shards.
        """
        a, b = self.a.run(), self.b.run()
        if a["cluster"]["shard_pages"] != b["cluster"]["shard_pages"]:
            sides = ((self.a, a), (self.b, b))
            where = [f"{o.store.location} ({d['cluster']['shard_pages']})" for o, d in sides]
            raise OtherPages(
                f"shards have other numbers of pages in {' and '.join(where)}: read both with the same "
                "--shard-pages"
            )
        return differences(a, b)

    def shards(self, wanted: Container[int] | None = None) -> Iterator[tuple[Marker | None, Marker | None]]:
        """By index the markers of both, None where a side has not read the shard; of all, or of those."""
        sides = [(output, self._by_index(output)) for output in (self.a, self.b)]
        indexes = sorted({i for _, names in sides for i in names if wanted is None or i in wanted})
        for first in range(0, len(indexes), _MARKERS):
            part = indexes[first : first + _MARKERS]
            a, b = (
                {marker.index: marker for marker in output.markers(filter(None, map(names.get, part)))}
                for output, names in sides
            )
            yield from ((a.get(index), b.get(index)) for index in part)

    def shards_of(self, pages: Iterable[int]) -> Iterator[tuple[Marker, Marker]]:
        """The markers of the shards that both have, and that have one of these pages."""
        size = self.a.run()["cluster"]["shard_pages"]
        for a, b in self.shards({page // size for page in pages}):
            if a is not None and b is not None:
                yield a, b

    @staticmethod
    def _by_index(output: Output) -> Mapping[int, str]:
        return {int(shard.partition("-")[0]): name for shard, name in output.marker_names().items()}


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
    shards: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Take in a shard; of the worst pages `MOST_WORST` stay."""
        self.shards += 1
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
    pair: Pair,
    executor: Executor,
    in_flight: int,
    into: str | None = None,
    on_shard: Callable[[Compared], None] = lambda compared: None,
    cancel: CancelToken | None = None,
) -> Compared:
    """Compare all that both have read, `in_flight` shards at a time; files of rows go into a store at `into`.

    Raises OtherPages, OutputError, StorageError, Cancelled, DsocrError where a worker is lost.
    """
    found = Compared()
    locations = (pair.a.store.location, pair.b.store.location)

    def calls() -> Iterator[tuple[Any, ...]]:
        for a, b in pair.shards():
            if a is None or b is None:
                found.only_a += a.pages if a else 0
                found.only_b += b.pages if b else 0
            else:
                yield ShardOf(locations[0], a), ShardOf(locations[1], b), pair.tolerance, into

    for rows in spread(compare_shard, calls(), executor, in_flight, cancel):
        found.add(rows)
        on_shard(found)
    planned = max(StatusReader(output).read().pages for output in (pair.a, pair.b))
    found.neither = planned - found.pages - found.only_a - found.only_b
    return found


def record_worst(settings: Settings, pair: Pair, worst: Sequence[Row], command: str) -> str | None:
    """Write a comparison's worst pages as a run that Review opens on; its id. Raises DsocrError."""
    numbers = {row["number"] for row in worst}
    names = settings.side_names
    with RunRecorder(settings, command) as recorder:
        for a, b in pair.shards_of(numbers):
            side_a = ShardOf(pair.a.store.location, a, names[0])
            side_b = ShardOf(pair.b.store.location, b, names[1])
            for page, comparison in comparisons(side_a, side_b, pair.tolerance):
                if page.number in numbers:
                    recorder.add(page.name, comparison)
    return recorder.id
