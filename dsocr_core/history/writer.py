"""Writing a run: in a directory under a temporary name, made an entry of the history when whole."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from dsocr_core.history.checksums import CHECKSUMS, write_checksums
from dsocr_core.history.readings import folded, reading_table, rows_table, timing_rows
from dsocr_core.history.record import RunRecord, json_bytes
from dsocr_core.history.rows import Row, not_compared_row, parity_row
from dsocr_core.history.schema import FLAT, TABLES, checked_table, rows_to_table, stored
from dsocr_core.history.storage.base import Storage, writing
from dsocr_core.history.storage.local import LocalStorage
from dsocr_core.outputs.artifacts import PREDICTIONS, backend_folder, page_key, write_page
from dsocr_core.outputs.clean import CleanPage
from dsocr_core.outputs.postprocess import clean_text
from dsocr_core.outputs.result_store import file_of
from dsocr_core.parity_records import ParityReport
from dsocr_core.records import VENDOR, OcrResult
from dsocr_core.stages import INSIDE_PREFILL

_VISION = frozenset(stage.value for stage in INSIDE_PREFILL) | {"vision"}


class RunWriter:
    """One run in the making.

        with RunWriter(location, record) as run:
            run.add_result("page.png", result, picture)
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
        self._storage: Storage = LocalStorage(root) if isinstance(root, Path) else root
        self._tables: dict[str, list[pa.Table]] = {}
        self._flat: dict[str, list[Row]] = {}
        """What importers say of pages, table by table."""
        self._exit = contextlib.ExitStack()
        self.directory = self._exit.enter_context(self._storage.scratch(record.id))
        """Where the run is written for now; further files may be put here."""
        self._finished: Path | None = None
        self._first: str | None = None

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
        """Rows of a table of `schema.TABLES` or `FLAT`; `run_id` may be left out. Raises SchemaError."""
        table = table if table in FLAT else stored(table)
        if isinstance(rows, pa.Table):
            made = checked_table(table, self.record.id, rows)
        else:
            made = rows_to_table(table, self.record.id, rows)
        if table in FLAT:
            self._flat.setdefault(table, []).extend(made.to_pylist())
        elif len(made):
            self._tables.setdefault(table, []).append(made)

    def add_result(self, page: str, result: OcrResult, picture: Image.Image | None = None) -> None:
        """What a backend read on a page, and its times.

        `page` names it within the run; the same name pairs it with a page of another run. With the RGB
        picture the page's folder under `viz/` is written, too.
        """
        self.add("readings", reading_table(page, result, file_of(result.request)))
        self.add("timings", timing_rows(page, result))
        if picture is not None:
            folder = self._backend_directory(result.backend) / "viz" / page_key(result.request.image)
            with writing(folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
                write_page(result, picture, folder)

    def add_clean(self, page: CleanPage) -> None:
        """The picture of a page without boxes, for both backends. Raises StorageError."""
        with writing(self.directory):
            page.write(self.directory)

    def add_failure(self, page: str, backend: str, error: str) -> None:
        """A page that a backend could not read: it stays in the run, with the reason and nothing else."""
        self.add("readings", [{"page": page, "backend": backend, "error": error}])

    def add_parity(self, page: str, report: ParityReport) -> None:
        """What A and B have in common on a page."""
        self.add("parity", [parity_row(page, report)])

    def add_not_compared(self, page: str, reasons: Sequence[str]) -> None:
        """A page that was to be compared and of which a side has no result."""
        self.add("parity", [not_compared_row(page, reasons)])

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> Path:
        """Write everything and make it visible; returns the run's local directory.

        Raises EntryExists when the history has a run of this name, StorageError when it cannot be written.
        """
        directory = self.complete()
        if self._replace:
            self._storage.remove("runs", self.record.id)
        return self.publish(directory)

    def publish(self, directory: Path) -> Path:
        """Make what `complete` wrote a run of the history. Raises EntryExists, StorageError."""
        self._finished = self._storage.publish(directory, "runs", self.record.id)
        self.close()
        return self._finished

    def complete(self) -> Path:
        """Write everything that is not there yet, under the temporary name. Raises StorageError."""
        if self._flat:
            self.add("readings", rows_table(folded(self._flat)))
        tables = {name: pa.concat_tables(parts) for name, parts in self._tables.items()}
        with writing(self.directory):
            for name in TABLES:
                if name in tables:
                    write_table(tables[name], self.directory / f"{name}.parquet")
            self._write_predictions(tables)
            document = self.record.to_json() | {
                "tables": {name: len(table) for name, table in tables.items()},
                "checksums": CHECKSUMS,
            }
            (self.directory / "run.json").write_bytes(json_bytes(document, indent=1) + b"\n")
            write_checksums(self.directory)
        return self.directory

    def _write_predictions(self, tables: Mapping[str, pa.Table]) -> None:
        """One line a page that was read, per backend: as llm-perf-opt writes it."""
        images = tables["readings"].select(_LINE).to_pylist() if "readings" in tables else []
        read = [row for row in images if row["text_raw"] is not None]
        if not read:
            return
        times: dict[tuple[str | None, str], dict[str, float]] = {}
        if "timings" in tables:
            for row in tables["timings"].to_pylist():
                if row["aggregate"] == "page":
                    of_page = times.setdefault((row["page"], row["backend"]), {})
                    of_page[row["stage"]] = of_page.get(row["stage"], 0.0) + row["milliseconds"]
        lines: dict[str, list[bytes]] = {}
        for row in read:
            line = _prediction(row, times.get((row["page"], row["backend"]), {}))
            lines.setdefault(row["backend"] or "", []).append(json_bytes(line) + b"\n")
        for backend, of_backend in lines.items():
            folder = self._backend_directory(backend)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / PREDICTIONS).write_bytes(b"".join(of_backend))

    def _backend_directory(self, backend: str) -> Path:
        """As in every run directory; A's files lie at the top."""
        if self._first is None and backend != VENDOR:
            self._first = backend
        return self.directory / backend_folder(backend, self._first)


_LINE = ["page", "backend", "source", "path", "preset", "new_tokens", "finish_reason", "text_raw"]


def write_table(table: pa.Table, file: Path) -> None:
    pq.write_table(table, file, compression="zstd", compression_level=1)


def _prediction(row: Row, times: Mapping[str, float]) -> Row:
    vision = [milliseconds for stage, milliseconds in times.items() if stage in _VISION]
    return {
        "image": row["path"] or row["page"],
        "source": row["source"] or row["page"],
        "backend": row["backend"],
        "text_raw": row["text_raw"],
        "text_clean": clean_text(row["text_raw"]),
        "prefill_ms": times.get("prefill"),
        "decode_ms": times.get("decode"),
        "vision_ms": sum(vision) if vision else None,
        "tokens": row["new_tokens"],
        "finish_reason": row["finish_reason"],
        "preset": row["preset"],
    }
