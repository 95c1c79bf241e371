"""Comparison of two outputs by several processes. Only shards in flight and the worst pages are in memory."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import differences
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import VERDICTS, Tolerance, Verdict, passes
from dsocr_core.reading.records import SIDES, CancelToken, OcrRequest, Side
from dsocr_core.runs.record import Recording
from dsocr_core.runs.results import parity_row
from dsocr_core.runs.sharded import Marker, PageReading
from dsocr_core.settings import Settings

MOST_WORST = 1000
"""Most pages that a comparison lists."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class ShardPair:
    """The same shard of two outputs, sent to another process. `names` replace the backends' names."""

    locations: tuple[str, str]
    markers: tuple[Marker, Marker]
    names: tuple[str | None, ...] = (None, None)

    def comparisons(self, tolerance: Tolerance) -> Iterator[tuple[PageReading, Comparison]]:
        """Every page with its comparison, under the file name that A has. Raises DsocrError."""
        places = " and ".join(self.locations)
        of_sides = [Output(at).pages(marker) for at, marker in zip(self.locations, self.markers, strict=True)]
        for page, other in zip(*of_sides, strict=False):
            if page.name.rpartition("/")[2] != other.name.rpartition("/")[2]:  # folders may have moved
                raise DsocrError(
                    f"{places}: page {page.number} is {page.name} and {other.name}: give outputs of the same "
                    "inputs"
                )
            a, b = (
                of.result and replace(of.result, backend=name or of.result.backend)
                for of, name in zip((page, other), self.names, strict=True)
            )
            errors: dict[Side, str] = {
                side: of.error or of.status
                for side, of in zip(SIDES, (page, other), strict=True)
                if of.result is None
            }
            request = a.request if a else OcrRequest.imported(Path(page.path), page.name)
            yield page, Comparison(request, a, b, errors, tolerance=tolerance)


def compare_shard(pair: ShardPair, tolerance: Tolerance) -> list[Row]:
    """Rows of parity of a shard's pages, with their numbers. Raises DsocrError."""
    return [
        {**parity_row(page.name, of.report, of.differences), "number": page.number}
        for page, of in pair.comparisons(tolerance)
    ]


def settings_that_differ(a: Output, b: Output) -> list[str]:
    """List the settings that differ: "infer.max_new_tokens: 20 and 40".

    Raises DsocrError where one is no output, or where their shards have different sizes.
    """
    runs = (a.run(), b.run())
    sizes = [run["cluster"]["shard_pages"] for run in runs]
    if len(set(sizes)) > 1:
        where = [f"{each.store.location} ({size})" for each, size in zip((a, b), sizes, strict=True)]
        raise DsocrError(
            f"shards have other numbers of pages in {' and '.join(where)}: read both with the same "
            "--shard-pages"
        )
    return differences(*runs)


@dataclass
class Compared:
    """Result of a comparison of two outputs.

    `worst` are pages that are not identical, the worst first; `not_compared` counts listed pages that a side
    has not read.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    error_rates: list[float] = field(default_factory=list)
    tokens_equal: Counter[bool] = field(default_factory=Counter)
    worst: list[Row] = field(default_factory=list)
    not_compared: int = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Add the rows of a shard and keep the `MOST_WORST` worst pages."""
        self.verdicts.update(row["verdict"] for row in rows)
        rates = (row["character_error_rate"] for row in rows)
        self.error_rates += [rate for rate in rates if rate is not None]
        self.tokens_equal.update(row["tokens_equal"] for row in rows if row["tokens_equal"] is not None)
        self.worst += [row for row in rows if row["verdict"] != "identical"]
        self.worst = sorted(self.worst, key=_badness)[:MOST_WORST]

    @property
    def pages(self) -> int:
        return self.verdicts.total()

    @property
    def mean_error_rate(self) -> float | None:
        """Mean CER of the pages that both sides read; None without one."""
        return statistics.fmean(self.error_rates) if self.error_rates else None

    @property
    def passed(self) -> int:
        return sum(count for verdict, count in self.verdicts.items() if passes(verdict))

    @property
    def failed(self) -> int:
        return self.pages - self.passed + self.not_compared


def _badness(row: Row) -> tuple[int, float, int]:
    """Sort key: the worst page first, equal ones by number."""
    return -VERDICTS.index(row["verdict"]), -(row["character_error_rate"] or 0.0), row["number"]


def _pairs(a: Output, b: Output, names: tuple[str | None, ...] = (None, None)) -> list[ShardPair]:
    """Shards that both outputs have, in order."""
    of_a, of_b = ({of.index: of for of in each.markers()} for each in (a, b))
    places = a.store.location, b.store.location
    both = sorted(of_a.keys() & of_b.keys())
    return [ShardPair(places, (of_a[index], of_b[index]), names) for index in both]


def compare_outputs(
    a: Output,
    b: Output,
    tolerance: Tolerance,
    executor: Executor,
    cancel: CancelToken,
    on_shard: Callable[[Compared], None] = lambda compared: None,
) -> Compared:
    """Compare all pages that both outputs have.

    Raises DsocrError, Cancelled.
    """
    found = Compared()
    try:
        for rows in executor.map(compare_shard, _pairs(a, b), repeat(tolerance)):
            if cancel.is_set():
                raise Cancelled
            found.add(rows)
            on_shard(found)
    except BrokenExecutor as error:
        raise DsocrError(f"a worker has ended ({one_line(error)}); give the same command again") from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    states = [read_status(output) for output in (a, b)]
    found.not_compared = max(each.planned or each.pages for each in states) - found.pages
    return found


def record_worst(settings: Settings, a: Output, b: Output, worst: Sequence[Row], command: str) -> str | None:
    """Record the worst pages as a run for Review. Returns its id. Raises DsocrError."""
    numbers, size = {row["number"] for row in worst}, a.run()["cluster"]["shard_pages"]
    shards = {number // size for number in numbers}
    with Recording(settings, command) as recorder:
        for pair in _pairs(a, b, settings.side_names):
            if pair.markers[0].index in shards:
                for page, comparison in pair.comparisons(settings.tolerance):
                    if page.number in numbers:
                        recorder.add(page.name, comparison)
    return recorder.id
