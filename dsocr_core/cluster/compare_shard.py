"""Parity of a shard that two outputs have: page by page, on any worker; what it leaves is a small file."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.cluster.output import Marker, Output
from dsocr_core.cluster.page_results import result_of, side_settings
from dsocr_core.cluster.rows import Row
from dsocr_core.errors import DsocrError
from dsocr_core.history.storage.store import Store
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.outputs.parity_row import parity_document
from dsocr_core.parity_records import Tolerance, Verdict
from dsocr_core.records import SIDES, Side

PARITY = pa.schema([
    ("number", pa.int64()), ("source", pa.string()), ("path", pa.string()), ("page", pa.int64()),
    ("verdict", pa.string()), ("reasons", pa.list_(pa.string())), ("character_error_rate", pa.float64()),
    ("tokens_equal", pa.bool_()), ("first_divergence", pa.int64()),
    ("max_coordinate_difference_percent", pa.float64()), ("boxes_a", pa.int64()), ("boxes_b", pa.int64()),
    ("boxes_matched", pa.int64()),
])  # fmt: skip
WORST_OF_A_SHARD = 256
"""Pages of a shard that are reported by name; all are in its file."""

_RANK: Mapping[Verdict, int] = {"not_comparable": 0, "differs": 1, "within_tolerance": 2, "identical": 3}


class OtherPages(DsocrError):
    """Two outputs that are not of the same pages; names the first that is another."""


@dataclass(frozen=True)
class ShardOf:
    """A shard of an output, as a worker is told of it."""

    location: str
    marker: Marker
    name: str | None = None
    """Of its backend, where it is not the one that is recorded."""

    def rows(self) -> dict[int, Row]:
        """Its pages by number. Raises OutputError, StorageError."""
        table = Output(self.location).results(self.marker)
        return {row["number"]: row for row in table.to_pylist()}


@dataclass
class Parity:
    """What came of pages that were compared."""

    verdicts: Counter[str] = field(default_factory=Counter)
    error_rates: float = 0.0
    """Sum of the character error rates of pages that both sides read."""
    read_by_both: int = 0
    tokens_known: int = 0
    tokens_equal: int = 0
    worst: list[Row] = field(default_factory=list)
    """Pages that are not identical, rows of PARITY, worst first."""

    def add(self, row: Row) -> None:
        self.verdicts[row["verdict"]] += 1
        if row["character_error_rate"] is not None:
            self.error_rates += row["character_error_rate"]
            self.read_by_both += 1
        self.tokens_known += row["tokens_equal"] is not None
        self.tokens_equal += row["tokens_equal"] is True
        if row["verdict"] != "identical":
            self.worst.append(row)

    def join(self, other: Parity, most: int) -> None:
        """Take in another shard's; of the worst pages that many stay."""
        self.verdicts += other.verdicts
        self.error_rates += other.error_rates
        self.read_by_both += other.read_by_both
        self.tokens_known += other.tokens_known
        self.tokens_equal += other.tokens_equal
        self.worst = sorted([*self.worst, *other.worst], key=badness)[:most]

    @property
    def pages(self) -> int:
        return self.verdicts.total()

    @property
    def error_rate(self) -> float | None:
        """Mean of the pages that both sides read; None without one."""
        return self.error_rates / self.read_by_both if self.read_by_both else None


def badness(row: Row) -> tuple[int, float, int]:
    """Sorts the worst page first, equal ones by number."""
    return _RANK[row["verdict"]], -(row["character_error_rate"] or 0.0), row["number"]


def compare_shard(a: ShardOf, b: ShardOf, tolerance: Tolerance, into: str | None) -> Parity:
    """Compare the pages of a shard; their rows go into the store at `into`, if there is one.

    Raises OtherPages, OutputError, StorageError.
    """
    found = [_row(row, comparison) for row, comparison in comparisons(a, b, tolerance)]
    if into is not None:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(found, schema=PARITY), buffer, compression="zstd")
        Store(into).put(f"{a.marker.index:09d}.parquet", buffer.getvalue())
    parity_of_shard = Parity()
    for row in found:
        parity_of_shard.add(row)
    parity_of_shard.join(Parity(), WORST_OF_A_SHARD)
    return parity_of_shard


def comparisons(a: ShardOf, b: ShardOf, tolerance: Tolerance) -> Iterator[tuple[Row, Comparison]]:
    """Every page that both have, with A's row."""
    settings = [side_settings(each.location) for each in (a, b)]
    rows_a, rows_b = a.rows(), b.rows()
    for number in sorted(rows_a.keys() & rows_b.keys()):
        rows = (rows_a[number], rows_b[number])
        if _name(rows[0]) != _name(rows[1]):
            raise OtherPages(
                f"page {number} is {rows[0]['path']} in {a.location} and {rows[1]['path']} in {b.location}: "
                "give outputs of the same inputs"
            )
        a_result, b_result = (
            result_of(row, own, side.name) for row, own, side in zip(rows, settings, (a, b), strict=True)
        )
        errors: dict[Side, str] = {
            side: str(row["error"] or row["status"])
            for side, row in zip(SIDES, rows, strict=True)
            if row["status"] != "read"
        }
        request = settings[0].request(Path(rows[0]["path"]), rows[0]["source"])
        yield rows[0], Comparison(request, a_result, b_result, errors, tolerance=tolerance)


def _row(row: Row, comparison: Comparison) -> Row:
    document = parity_document(comparison.report, comparison.reasons)
    boxes = {f"boxes_{name}": count for name, count in document["boxes"].items()}
    own = {name: row[name] for name in ("number", "source", "path", "page")}
    return {name: value for name, value in {**document, **boxes, **own}.items() if name in PARITY.names}


def _name(row: Row) -> tuple[str, Any]:
    """What has to be the same on both sides; folders may have moved."""
    return str(row["path"]).rpartition("/")[2], row["page"]
