"""Writing a run: in a directory under a temporary name, made an entry of the history when whole."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.sanitise import json_bytes
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.parity_records import RULE, ParityReport
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.checksums import CHECKSUMS, write_checksums
from dsocr_core.runs.readings import reading_table, timing_rows
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.rows import Row, parity_row
from dsocr_core.runs.schema import TABLES, checked_table, rows_to_table
from dsocr_core.runs.storage.entries import Storage
from dsocr_core.runs.storage.store import writing


class RunWriter:
    """One run in the making.

        with RunWriter(location, record) as run:
            run.add_result("page.png", result)
            run.add_parity("page.png", report)

    The run is in the history when the block ends; an exception leaves only the temporary directory, which
    `doctor` names and clears. `close` ends a writer that was not used as a context manager.
    """

    def __init__(self, root: Path | Storage, record: RunRecord, replace: bool = False) -> None:
        """`replace`: what lies under the run's name is damaged, and makes room when this one is whole.

        Raises StorageError when nothing can be written at `root`.
        """
        self.record = record
        self._replace = replace
        self._storage = Storage(root) if isinstance(root, Path) else root
        self._tables: dict[str, list[pa.Table]] = {}
        self._exit = contextlib.ExitStack()
        self.directory = self._exit.enter_context(self._storage.scratch(record.id))
        """Directory where the run is written for now; further files may be put here."""
        self._finished: Path | None = None

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._finished is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the temporary directory; what was not finished becomes a leftover."""
        self._exit.close()

    # --- rows -----------------------------------------------------------------------------------

    def add(self, table: str, rows: Sequence[Row] | pa.Table) -> None:
        """Add rows of a table of `schema.TABLES`; `run_id` may be left out. Raises SchemaError."""
        table = "timings" if table == "stage_timings" else table
        if isinstance(rows, pa.Table):
            made = checked_table(table, self.record.id, rows)
        else:
            made = rows_to_table(table, self.record.id, rows)
        if len(made):
            self._tables.setdefault(table, []).append(made)

    def add_result(self, page: str, result: OcrResult) -> pa.Table:
        """Add what a backend read on a page, and its times; returns its row of readings.

        `page` names it within the run; the same name pairs it with a page of another run.
        """
        rows = reading_table(page, result, files_of(result.request))
        self.add("readings", rows)
        self.add("timings", timing_rows(rows))
        return rows

    def add_failure(self, page: str, backend: str, error: str) -> None:
        """A page that a backend could not read: it stays in the run, with the reason and nothing else."""
        self.add("readings", [{"page": page, "backend": backend, "error": error}])

    def add_parity(self, page: str, report: ParityReport) -> None:
        """Add what A and B have in common on a page."""
        self.add("parity", [parity_row(page, report)])

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> Path:
        """Write everything and make it visible; returns the run's local directory.

        Raises EntryExists when the history has a run of this name, StorageError when it cannot be written.
        """
        directory = self.complete()
        if self._replace:
            self._storage.remove(self.record.id)
        return self.publish(directory)

    def publish(self, directory: Path) -> Path:
        """Make what `complete` wrote a run of the history. Raises EntryExists, StorageError."""
        self._finished = self._storage.publish(directory, self.record.id)
        self.close()
        return self._finished

    def complete(self) -> Path:
        """Write everything that is not there yet, under the temporary name. Raises StorageError."""
        tables = {name: pa.concat_tables(parts) for name, parts in self._tables.items()}
        with writing(self.directory):
            for name in TABLES:
                if name in tables:
                    write_table(tables[name], self.directory / f"{name}.parquet")
            seal(self.directory, self.record, {name: len(table) for name, table in tables.items()})
        return self.directory


def seal(
    directory: Path, record: RunRecord, rows: Mapping[str, int], pictures: Mapping[str, Path] = {}
) -> None:
    """Write the document of a run whose tables are there, and the checksums. Raises OSError.

    `pictures` are files of the run, by their names in it, that lie elsewhere.
    """
    made = {"tables": dict(rows), "checksums": CHECKSUMS, "parity_rule": RULE}
    document = record.to_json() | made
    (directory / "run.json").write_bytes(json_bytes(document, indent=1) + b"\n")
    write_checksums(directory, pictures)


def write_table(table: pa.Table, file: Path) -> None:
    pq.write_table(table, file, compression="zstd", compression_level=1)
