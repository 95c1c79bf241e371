"""Two outputs shard by shard on any executor: what is held is what is in flight, and the worst pages."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from dsocr_core.cluster.compare_shard import OtherPages, Parity, ShardOf, compare_shard
from dsocr_core.cluster.job import differences
from dsocr_core.cluster.output import Marker, Output
from dsocr_core.cluster.spread import spread
from dsocr_core.cluster.status import StatusReader
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import CancelToken

MOST_WORST = 1000
"""Pages that a comparison names; all are in its files."""
FILES = "parity"
"""Of a comparison's directory: a Parquet file a shard, rows of `compare_shard.PARITY`."""
_MARKERS = 512
"""Read at a time."""


@dataclass(frozen=True)
class Pair:
    """Two outputs of the same pages."""

    a: Output
    b: Output
    tolerance: Tolerance

    def settings_that_differ(self) -> list[str]:
        """What both were made with, where it is not the same: "infer.max_new_tokens: 20 and 40".

        Raises DsocrError where there is no run, OtherPages for other shards.
        """
        a, b = self.a.run(), self.b.run()
        if a["shard_pages"] != b["shard_pages"]:
            where = [f"{o.store.location} ({d['shard_pages']})" for o, d in ((self.a, a), (self.b, b))]
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
        size = self.a.run()["shard_pages"]
        for a, b in self.shards({page // size for page in pages}):
            if a is not None and b is not None:
                yield a, b

    @staticmethod
    def _by_index(output: Output) -> Mapping[int, str]:
        return {int(shard.partition("-")[0]): name for shard, name in output.marker_names().items()}


@dataclass
class Compared:
    """What came of two outputs."""

    parity: Parity
    only_a: int = 0
    """Pages of shards that B has not read."""
    only_b: int = 0
    neither: int = 0
    """Pages that are planned, and that no side has read."""
    shards: int = 0

    @property
    def passed(self) -> int:
        return self.parity.verdicts["identical"] + self.parity.verdicts["within_tolerance"]

    @property
    def failed(self) -> int:
        return self.parity.pages - self.passed + self.only_a + self.only_b + self.neither


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
    compared = Compared(Parity())
    locations = (pair.a.store.location, pair.b.store.location)

    def calls() -> Iterator[tuple[Any, ...]]:
        for a, b in pair.shards():
            if a is None or b is None:
                compared.only_a += a.pages if a else 0
                compared.only_b += b.pages if b else 0
            else:
                yield ShardOf(locations[0], a), ShardOf(locations[1], b), pair.tolerance, into

    for parity in spread(compare_shard, calls(), executor, in_flight, cancel):
        compared.parity.join(parity, MOST_WORST)
        compared.shards += 1
        on_shard(compared)
    planned = max(StatusReader(output).read().pages for output in (pair.a, pair.b))
    compared.neither = planned - compared.parity.pages - compared.only_a - compared.only_b
    return compared
