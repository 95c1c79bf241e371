"""The figures of a measured history, its targets, and tables of them for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from dsocr_core.console import titled_table

TARGETS = {
    "open_s": 5.0,
    "refresh_s": 0.3,
    "history_p95_ms": 400.0,
    "run_p95_ms": 50.0,
    "statistics_p95_ms": 400.0,
}
_KINDS = {"history": "all runs", "run": "one or two", "statistics": "two, bootstrap"}


@dataclass(frozen=True)
class QueryTime:
    """Milliseconds of one query. `kind`: over the whole history, about one run (or two), or that with the
    bootstrap of every stage behind it."""

    name: str
    kind: str
    rows: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Measured:
    """One size of the history."""

    runs: int
    stage_rows: int
    open_s: float
    refresh_s: float
    """After one new run; the slowest of three."""
    idle_refresh_s: float
    memory_mb: float
    """Resident memory added by opening and asking everything."""
    queries: list[QueryTime] = field(default_factory=list)

    def slowest_ms(self, kind: str) -> float:
        """The largest p95 of the queries of that kind."""
        return max((query.p95_ms for query in self.queries if query.kind == kind), default=0.0)

    def missed(self) -> list[str]:
        """Targets that were not reached."""
        found = [
            f"{name}: {value:.3g} > {TARGETS[name]:g}"
            for name, value in (("open_s", self.open_s), ("refresh_s", self.refresh_s))
            if value > TARGETS[name]
        ]
        return found + [
            f"{query.name}: {query.p95_ms:.3g} ms > {TARGETS[f'{query.kind}_p95_ms']:g} ms"
            for query in self.queries
            if query.p95_ms > TARGETS[f"{query.kind}_p95_ms"]
        ]


@dataclass(frozen=True)
class HistoryReport:
    """What `measure history` prints."""

    write_run_ms: float
    """Median time to write one run, fsynced and renamed."""
    sizes: list[Measured]

    @property
    def missed(self) -> list[str]:
        """Targets that the largest size did not reach."""
        return self.sizes[-1].missed()

    def document(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self) | {"targets": TARGETS, "missed": self.missed}

    def print(self, console: Console) -> None:
        """How everything grows with the history, then every query of the largest size."""
        growth = titled_table(
            "Growth", "Runs", "Stage rows", "Cold open", "Refresh", "Idle", "Memory", "p95, all runs",
            "p95, one run",
        )  # fmt: skip
        for size in self.sizes:
            growth.add_row(
                f"{size.runs:,}",
                f"{size.stage_rows:,}",
                f"{size.open_s:.2f} s",
                f"{size.refresh_s * 1000:.0f} ms",
                f"{size.idle_refresh_s * 1000:.1f} ms",
                f"{size.memory_mb:.0f} MB",
                f"{size.slowest_ms('history'):.0f} ms",
                f"{size.slowest_ms('run'):.0f} ms",
            )
        queries = titled_table("Queries", "Query", "Over", "Rows", "Median", "p95", "Target")
        for query in self.sizes[-1].queries:
            queries.add_row(
                query.name,
                _KINDS[query.kind],
                f"{query.rows:,}",
                f"{query.median_ms:.1f} ms",
                f"{query.p95_ms:.1f} ms",
                f"{TARGETS[f'{query.kind}_p95_ms']:g} ms",
            )
        console.print(growth)
        console.print(queries)
        console.print(f"writing a run takes {self.write_run_ms:.0f} ms (median, on the disk and renamed)")
        console.print("missed: " + "; ".join(self.missed) if self.missed else "all targets met")
