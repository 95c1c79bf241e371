"""The only writer and reader of a run's files. A kill costs at most the page that is being written.

    run.json readings.parquet timings.parquet parity.parquet ... SHA256SUMS clean/     the run
    .unfinished/000000017.arrow        the rows of a page that was read since, its parity in their metadata
    .unfinished/whole/                 the next run, on its way to its place

A page lies in a part, synced, as soon as it is added. `finish` makes one run of what was there and of the
parts, which go last; where a page was read again, the last one counts. A writer that was killed leaves its
parts: in a directory of its own (`open`) the next one goes on with them, in a history (`create`) they are a
leftover.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json, parse_value, read_bytes
from dsocr_core.base.errors import one_line
from dsocr_core.base.sanitise import json_bytes, name_text, text_name
from dsocr_core.reading.clean import FOLDER as CLEAN
from dsocr_core.reading.parity_records import RULE
from dsocr_core.reading.records import VENDOR, BackendName, OcrResult
from dsocr_core.reading.writing import StorageError, write_whole, writing
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, write_checksums
from dsocr_core.runs.record import RunRecord, parity_rule_of
from dsocr_core.runs.results import SCHEMA, PageResults, Row, result_of, timing_rows
from dsocr_core.runs.schema import TABLES, checked_table, read_rows, rows_to_table, with_columns
from dsocr_core.runs.shapes import COLUMNS, Shape, own_shapes
from dsocr_core.runs.storage import DOCUMENT_LIMIT, RunStorage, sync_tree, synced, writing_into

UNFINISHED, _DONE, _WHOLE = ".unfinished", ".done", "whole"
_OWN = "viz", "pages", VENDOR, "backends", CLEAN, UNFINISHED  # folders of a run; others may be other runs'
_PARITY = "parity"
_ROWS_AT_ONCE = 64
_DONE_COLUMNS = ("page", "backend", "source", "path", "key", "error")
_FACTS = ("backend", "path", "source", "page", "preset", "request", "inputs", "grid_columns", "grid_rows",
          "environment", "exact", "error")  # fmt: skip
"""Columns of what a record says of all pages."""

CountRows = Callable[[dict[str, Any] | None, str | None, Mapping[str, Iterable[Shape]]], list[Row]]
"""Counter of FLOPs: rows of stage_flops by a model's config, a number type and shapes of each backend."""
Done = tuple[BackendName, str, str, Path]  # of a page that was read: backend, name, key, file


class RunDirectory:
    """A directory that holds a run, or will; by itself it only reads.

        with RunDirectory.create(history, record) as run:
            run.add(PageResults("page.png", results=[result]))

    Everything raises StorageError where the directory cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record: RunRecord | None = None
        self.parity_rule = RULE
        """Of the verdicts in it: ingest judges those of another rule anew."""
        self._storage: RunStorage | None = None
        """The history that the run will be in; None for a directory of its own."""
        self._replace = False
        self._parts = directory / UNFINISHED
        self._tables: dict[str, list[pa.Table]] = {}
        self._part_of: dict[tuple[str, str | None], int] = {}
        self._paths: dict[str, str | None] = {}
        self._last = 0
        self._turn = threading.Lock()
        self._exit = ExitStack()

    @classmethod
    def create(
        cls, history: str | Path | RunStorage, record: RunRecord, replace: bool = False
    ) -> RunDirectory:
        """A new run of a history, which has it when `finish` ends; until then its directory is a leftover.

        With `replace`, `finish` removes a damaged run of the same name.
        """
        storage = history if isinstance(history, RunStorage) else RunStorage(history)
        stack = ExitStack()
        run = cls(stack.enter_context(storage.scratch(record.id)))
        run.record, run._storage, run._replace, run._exit = record, storage, replace, stack
        return run

    @classmethod
    def open(cls, directory: Path) -> RunDirectory:
        """Go on in a directory of its own, which no other process writes meanwhile. Raises DsocrError."""
        run = cls(directory)
        with ExitStack() as stack:
            stack.enter_context(writing_into(directory))
            with writing(directory):
                own = (half for folder in _OWN for half in (directory / folder).rglob(".part-*"))
                for half in (directory / _DONE, *directory.glob(".part-*"), *own):  # of killed writers
                    shutil.rmtree(half) if half.is_dir() else half.unlink(missing_ok=True)
            run._take_up()
            run._exit = stack.pop_all()
        return run

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.closing(self):
            if kind is None and self._storage is not None and self.directory.exists():
                self.finish()

    def close(self) -> None:
        """Unlock the directory. An unfinished run stays, unless it is empty."""
        with contextlib.suppress(OSError):
            self._parts.rmdir()
        self._exit.close()

    # --- pages ----------------------------------------------------------------------------------

    @property
    def has_parts(self) -> bool:
        return any(self._part_of.values())

    def begin(self) -> None:
        """Mark the directory as one that is written, before anything of a page is in it."""
        with writing(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)

    def done(self) -> list[Done]:
        """Every page that was read, and can be found by a key."""
        rows = (row for table in self._chosen(_DONE_COLUMNS) for row in table.to_pylist())
        return [
            (row["backend"], row["source"], row["key"], Path(text_name(row["path"])))
            for row in rows
            if row["error"] is None and row["key"] is not None and row["path"] is not None
        ]

    def add(self, page: PageResults) -> None:
        """Record the results of a page, from any thread, on the disk. Raises DsocrError, too."""
        if not page.results and not page.errors:
            return
        with self._turn:  # threads that make rows at the same time take twice as long for each
            name = self._name_of(page.source, page.image)
            self._last = number = self._last + 1
            # Whoever goes on with a directory may do so from another one.
            rows = checked_table("readings", "", page.table(name, absolute=self._storage is None))
            rows_to_table("timings", "", timing_rows(rows))
            parity = page.parity and {**page.parity, "page": name}
            rows = rows.replace_schema_metadata({_PARITY: json.dumps(parity)})
            content = pa.BufferOutputStream()  # of a row Parquet takes 20 times as long, to write and to read
            with pa.ipc.new_file(content, rows.schema) as writer:
                writer.write_table(rows)
        file = self._parts / f"{number:09d}.arrow"
        with writing(file):
            for path, picture in page.clean.items():
                if not (self.directory / path).exists():
                    write_whole(self.directory / path, picture)
            write_whole(file, content.getvalue().to_pybytes(), sync=True)
        backends = zip(rows["page"].to_pylist(), rows["backend"].to_pylist(), strict=True)
        with self._turn:
            self._part_of |= dict.fromkeys(backends, number)

    def add_rows(self, table: str, rows: Sequence[Row] | pa.Table) -> None:
        """Add rows of a table, written by `finish`; `run_id` may be left out. Raises DsocrError."""
        made = (checked_table if isinstance(rows, pa.Table) else rows_to_table)(table, "", rows)
        if len(made):
            self._tables.setdefault(table, []).append(made)

    # --- the end --------------------------------------------------------------------------------

    def finish(self, record: RunRecord | None = None, count: CountRows | None = None) -> Path:
        """Make the directory that run, else `create`'s. Returns where it is. Raises EntryExists."""
        record = record or self.record
        assert record is not None
        if self._storage is not None:
            self._write(record, self.directory, count)
            return self._storage.publish(self.directory, record.id, self._replace)
        whole, done = self._parts / _WHOLE, self.directory / _DONE
        shutil.rmtree(whole, ignore_errors=True)
        self._write(record, whole, count)
        with writing(self.directory):
            # Until the parts are gone it counts as unfinished: the next writer makes the same run of them.
            sync_tree(whole)
            for name in TABLES:
                if not (whole / f"{name}.parquet").exists():
                    (self.directory / f"{name}.parquet").unlink(missing_ok=True)
            for file in whole.iterdir():
                file.replace(self.directory / file.name)
            synced(self.directory)
            self._parts.rename(done)
            shutil.rmtree(done)
        return self.directory

    def _write(self, record: RunRecord, target: Path, count: CountRows | None) -> None:
        """Write the run's tables and documents into a directory."""
        shapes: dict[str, dict[Shape, None]] = {}
        rows = dict.fromkeys(TABLES, 0)
        writers: dict[str, pq.ParquetWriter] = {}

        def add(name: str, table: pa.Table) -> None:
            if not len(table):
                return
            if name not in writers:
                file, form = target / f"{name}.parquet", {"compression": "zstd", "compression_level": 1}
                writers[name] = stack.enter_context(pq.ParquetWriter(file, TABLES[name], **form))
            ids = pa.repeat(pa.scalar(record.id, pa.string()), len(table))
            writers[name].write_table(table.set_column(0, TABLES[name].field(0), ids))
            rows[name] += len(table)

        with writing(target):
            with ExitStack() as stack:
                target.mkdir(parents=True, exist_ok=True)
                for table in self._chosen():
                    add("readings", table)
                    add("timings", rows_to_table("timings", "", timing_rows(table)))
                    for backend, of_backend in own_shapes(table.select(COLUMNS).to_pylist()).items():
                        shapes.setdefault(backend, {}).update(dict.fromkeys(of_backend))
                flops = count(record.config, record.dtype, shapes) if count else []
                add("stage_flops", rows_to_table("stage_flops", "", flops))
                add("parity", rows_to_table("parity", "", self._parity()))
                for name, parts in self._tables.items():
                    add(name, pa.concat_tables(parts))
            if target == self.directory:
                shutil.rmtree(self._parts, ignore_errors=True)
            tables = {name: number for name, number in rows.items() if number}
            document = record.to_json() | {"tables": tables, "checksums": CHECKSUMS}
            document["parity_rule"] = self.parity_rule
            (target / "run.json").write_bytes(json_bytes(document, indent=1) + b"\n")
            pictures = (self.directory / CLEAN).glob("*")
            write_checksums(target, {f"{CLEAN}/{file.name}": file for file in pictures})

    def save_in(self, history: str, name: str) -> None:
        """Add the finished run to a history as well, by hard links where the file system has them."""
        storage = RunStorage(history)
        with storage.scratch(name) as target, writing(target):
            for file in [*read_checksums(self.directory), CHECKSUMS]:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(self.directory / file, target / file)
                except OSError:  # another file system, or one without links
                    shutil.copyfile(self.directory / file, target / file)
            storage.publish(target, name)

    # --- rows -----------------------------------------------------------------------------------

    def results(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[tuple[Row, OcrResult | None]]:
        """Rows of readings of the whole run with their results, some at a time."""
        for row in (row for part, table in self._readings(columns) if not part for row in table.to_pylist()):
            yield row, result_of(row)

    def facts(self) -> Iterator[OcrResult]:
        """Every result without its text and tokens."""
        for table in self._chosen(_FACTS):
            for row in table.to_pylist():
                if (result := result_of(row | {"text_raw": ""})) is not None:
                    inputs = result.inputs and replace(result.inputs, prompt_ids=())
                    yield replace(result, inputs=inputs)

    def _name_of(self, source: str, image: Path | None) -> str:
        """Name a page: by its path where another file has its name."""
        resolved = None if image is None else str(image.resolve())
        known = self._paths.get(source)
        if known is None or resolved is None or known == resolved:
            self._paths[source] = known or resolved
            return source
        return name_text(resolved)

    def _readings(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[tuple[int, pa.Table]]:
        """Rows of the run, numbered 0, and of the parts, some at a time. Raises pyarrow's errors, OSError."""
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        whole = self.directory / "readings.parquet"
        if whole.exists():
            for batch in pq.ParquetFile(whole).iter_batches(_ROWS_AT_ONCE, columns=[*columns]):
                yield 0, with_columns(pa.Table.from_batches([batch]), schema)
        for number, table in self._numbered_parts():
            yield number, with_columns(table, schema)

    def _numbered_parts(self) -> Iterator[tuple[int, pa.Table]]:
        for part in sorted(self._parts.glob("[0-9]*")):
            yield int(part.stem), pa.ipc.open_file(part.read_bytes()).read_all()

    def _take_up(self) -> None:
        """Know the pages of the run and of its parts."""
        try:
            for number, table in self._readings(_DONE_COLUMNS):
                self._last = number
                for row in table.to_pylist():
                    self._part_of[row["page"], row["backend"]] = number
                    path = None if row["path"] is None else str(Path(text_name(row["path"])).resolve())
                    self._paths[row["page"]] = self._paths.get(row["page"]) or path
            if (self.directory / "parity.parquet").exists():
                document: object = None  # a writer may have been killed before it was in its place
                with contextlib.suppress(InvalidFile):
                    document = parse_json(read_bytes(self.directory / "run.json", DOCUMENT_LIMIT))
                self.parity_rule = parity_rule_of(document if isinstance(document, dict) else {})
        except (pa.ArrowException, OSError, ValueError) as error:
            cause = one_line(error, 200)
            raise StorageError(
                f"{self.directory}: its pages cannot be read ({cause}): give another --out"
            ) from error

    def _chosen(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[pa.Table]:
        """The rows that count, some at a time."""
        waiting: list[pa.Table] = []
        for number, table in self._readings(columns):
            keys = zip(table["page"].to_pylist(), table["backend"].to_pylist(), strict=True)
            counts = [self._part_of[key] == number for key in keys]
            waiting.append(table if all(counts) else table.filter(counts))
            if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _parity(self) -> list[Row]:
        """A row a page, of the last time that both sides read it; none where one was read since alone."""
        earlier = self.directory / "parity.parquet"
        rows = read_rows(earlier).drop_columns("run_id").to_pylist() if earlier.exists() else []
        found: dict[str, Row | None] = {row["page"]: row for row in rows}
        for _, table in self._numbered_parts():
            parity = parse_value(table.schema.metadata[_PARITY.encode()])
            found |= dict.fromkeys(table["page"].to_pylist(), parity)
        return [row for row in found.values() if row is not None]


def is_begun(directory: Path) -> bool:
    """Look whether a run is being written there, or a writer of one was stopped."""
    return (directory / UNFINISHED).is_dir()
