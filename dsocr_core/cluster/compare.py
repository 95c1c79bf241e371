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
from dsocr_core.reading.records import SIDES, CancelToken, OcrRequest, Side
from dsocr_core.runs.record import Recording
from dsocr_core.runs.results import parity_row
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


@dataclass(frozen=True)
class ShardPair:
    """A shard as two outputs have it, for another process; `names` replace those of the recorded backends."""

    locations: tuple[str, str]
    markers: tuple[Marker, Marker]
    names: tuple[str | None, ...] = (None, None)

    def comparisons(self, tolerance: Tolerance) -> Iterator[tuple[PageReading, Comparison]]:
        """Every page, as A has it, with the comparison. Raises OtherPages, OutputError, StorageError."""
        places = " and ".join(self.locations)
        of_sides = [Output(at).pages(marker) for at, marker in zip(self.locations, self.markers, strict=True)]
        if len(of_sides[0]) != len(of_sides[1]):
            raise OtherPages(f"{places}: shard {self.markers[0].index} has other pages")
        for pages in zip(*of_sides, strict=True):
            page, other = pages
            if page.name.rpartition("/")[2] != other.name.rpartition("/")[2]:  # folders may have moved
                raise OtherPages(
                    f"{places}: page {page.number} is {page.name} and {other.name}: give outputs of the same "
                    "inputs"
                )
            a, b = (
                of.result and replace(of.result, backend=name or of.result.backend)
                for of, name in zip(pages, self.names, strict=True)
            )
            errors: dict[Side, str] = {
                side: of.error or of.status
                for side, of in zip(SIDES, pages, strict=True)
                if of.result is None
            }
            request = a.request if a else OcrRequest.imported(Path(page.path), page.name)
            yield page, Comparison(request, a, b, errors, tolerance=tolerance)


def compare_shard(pair: ShardPair, tolerance: Tolerance, into: str | None) -> list[Row]:
    """Rows of parity of a shard's pages, with their numbers; a file of them goes into the store at `into`.

    Raises OtherPages, OutputError, StorageError.
    """
    found = list(pair.comparisons(tolerance))
    rows = [parity_row(page.name, of.report, of.differences) for page, of in found]
    table = rows_to_table("parity", "", rows)
    if into is not None:
        Store(into).put(f"{pair.markers[0].index:09d}.parquet", parquet(table))
    written = table.drop_columns("run_id").to_pylist()
    return [{**row, "number": page.number} for row, (page, _) in zip(written, found, strict=True)]


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


@dataclass
class Compared:
    """Outcome of two outputs.

    `worst` are pages that are not identical, worst first. `only_a` are pages of shards that B has not read,
    `neither` pages that are planned and that no side has read.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    error_rates: float = 0.0
    read_by_both: int = 0
    tokens_known: int = 0
    tokens_equal: int = 0
    worst: list[Row] = field(default_factory=list)
    only_a: int = 0
    only_b: int = 0
    neither: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Take in a shard; of the worst pages `MOST_WORST` stay."""
        for row in rows:
            self.verdicts[row["verdict"]] += 1
            self.error_rates += row["character_error_rate"] or 0.0
            self.read_by_both += row["character_error_rate"] is not None
            self.tokens_known += row["tokens_equal"] is not None
            self.tokens_equal += row["tokens_equal"] is True
            if row["verdict"] != "identical":
                self.worst.append(row)
        self.worst = sorted(self.worst, key=_badness)[:MOST_WORST]

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


def _badness(row: Row) -> tuple[int, float, int]:
    """Sorts the worst page first, equal ones by number."""
    return _RANK[row["verdict"]], -(row["character_error_rate"] or 0.0), row["number"]


def _pairs(a: Output, b: Output) -> list[tuple[Marker | None, Marker | None]]:
    """By index the markers of both, None where a side has not read the shard."""
    of_a, of_b = ({of.index: of for of in each.markers(each.marker_names().values())} for each in (a, b))
    return [(of_a.get(index), of_b.get(index)) for index in sorted({*of_a, *of_b})]


def compare_outputs(
    a: Output, b: Output, tolerance: Tolerance, executor: Executor, into: str | None = None,
    on_shard: Callable[[Compared], None] = lambda compared: None, cancel: CancelToken | None = None,
) -> Compared:  # fmt: skip
    """Compare all that both have read; files of rows go into a store at `into`.

    Raises OtherPages, OutputError, StorageError, Cancelled, DsocrError where a worker is lost.
    """
    found, both = Compared(), []
    for of_a, of_b in _pairs(a, b):
        if of_a and of_b:
            both.append(ShardPair((a.store.location, b.store.location), (of_a, of_b)))
        else:
            found.only_a += of_a.pages if of_a else 0
            found.only_b += of_b.pages if of_b else 0
    try:
        for rows in executor.map(compare_shard, both, [tolerance] * len(both), [into] * len(both)):
            if cancel is not None and cancel.is_set():
                raise Cancelled
            found.add(rows)
            on_shard(found)
    except BrokenExecutor as error:
        raise DsocrError(f"a worker has ended ({one_line(error)}); give the same command again") from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    planned = max(read_status(output).planned for output in (a, b))
    found.neither = planned - found.pages - found.only_a - found.only_b
    return found


def record_worst(settings: Settings, a: Output, b: Output, worst: Sequence[Row], command: str) -> str | None:
    """Write a comparison's worst pages as a run that Review opens on; its id. Raises DsocrError."""
    numbers = {row["number"] for row in worst}
    size = a.run()["cluster"]["shard_pages"]
    shards = {number // size for number in numbers}
    with Recording(settings, command) as recorder:
        for of_a, of_b in _pairs(a, b):
            if of_a and of_b and of_a.index in shards:
                pair = ShardPair((a.store.location, b.store.location), (of_a, of_b), settings.side_names)
                for page, comparison in pair.comparisons(settings.tolerance):
                    if page.number in numbers:
                        recorder.add(page.name, comparison)
    return recorder.id
