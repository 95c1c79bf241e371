"""A run in the making, page by page: a kill costs the page that was being written, and no other.

    run.json readings.parquet timings.parquet parity.parquet SHA256SUMS clean/     the run
    .unfinished/000000017.parquet      the rows of a page that was read since, its parity in their metadata
    .finished/whole/                   the next run, on its way to its place

A page lies in a part as soon as it is read. The end makes one run of what was there and of the parts; where a
page was read again, the last one counts. A writer that was killed leaves its parts, and the next one goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import parse_value
from dsocr_core.base.errors import one_line
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.reading.clean import FOLDER as CLEAN
from dsocr_core.reading.clean import CleanPage, clean_path
from dsocr_core.reading.records import BackendName, OcrResult
from dsocr_core.reading.writing import write_whole
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.readings import SCHEMA, few_rows, result_of, timing_rows, with_run_id
from dsocr_core.runs.record import RunRecord, read_document
from dsocr_core.runs.rows import Row
from dsocr_core.runs.schema import TABLES, checked_table, rows_to_table
from dsocr_core.runs.shapes import COLUMNS, Shape, own_shapes
from dsocr_core.runs.storage.entries import sync_tree
from dsocr_core.runs.storage.store import StorageError, writing
from dsocr_core.runs.writer import seal

UNFINISHED, _FINISHED, _WHOLE = ".unfinished", ".finished", "whole"
_PARITY = "parity"
_ROWS_AT_ONCE = 64
_FACTS = ("backend", "path", "source", "page", "preset", "request", "inputs", "grid_columns", "grid_rows",
          "environment", "exact", "error")  # fmt: skip
"""Columns of what a record says of all pages."""
_KNOWN = ["page", "backend", "source", "path", "key", "error"]


CountRows = Callable[[dict[str, Any] | None, str | None, Mapping[str, Iterable[Shape]]], list[Row]]
"""Counter of FLOPs: rows of stage_flops by a model's config, a number type and shapes of each backend."""


@dataclass(frozen=True)
class Done:
    """A page that was read, and what it is found by."""

    backend: BackendName
    source: str
    key: str
    image: Path


class RunFolder:
    """A directory that holds a run, or will. One writer at a time: its owner sees to that.

    Everything raises StorageError where the directory cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._parts = directory / UNFINISHED
        self._part_of: dict[tuple[str, str | None], int] = {}
        self._paths: dict[str, str | None] = {}
        self._done: dict[tuple[str, str | None], Done | None] = {}
        self._last = 0
        with writing(directory):
            self._settle()
            for half in (*self._parts.glob(".part-*"), *(directory / CLEAN).glob(".part-*")):
                half.unlink()
        for number, file in self._files():
            for row in self._known(file):
                self._take_up(number, row)

    @property
    def continues(self) -> bool:
        """True where it held a run before this writer and those that were stopped."""
        return (self.directory / "readings.parquet").exists()

    @property
    def has_parts(self) -> bool:
        return self._last > 0

    def begin(self) -> None:
        """Mark the directory as one that is written, before anything of a page is in it."""
        with writing(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)

    def leave(self) -> None:
        """Take the mark away where no page came."""
        with contextlib.suppress(OSError):
            self._parts.rmdir()

    def done(self) -> list[Done]:
        """Every page that had been read when this was opened."""
        return [done for done in self._done.values() if done is not None]

    def name_of(self, source: str, image: Path | None) -> str:
        """Name a page: by its path where another file has its name."""
        resolved = None if image is None else str(image.resolve())
        known = self._paths.get(source)
        if known is None or resolved is None or known == resolved:
            self._paths[source] = known or resolved
            return source
        return name_text(resolved)

    def add(self, rows: pa.Table, parity: Row | None = None) -> None:
        """Put down what the backends read on a page: rows of readings. Raises SchemaError, too."""
        rows = checked_table("readings", "", rows)
        rows_to_table("timings", "", timing_rows(rows))
        rows_to_table("parity", "", [parity] if parity else [])
        self._last += 1
        file = self._parts / f"{self._last:09d}.parquet"
        content = few_rows(rows, {_PARITY: json.dumps(parity)})
        with writing(file):
            write_whole(file, content, sync=True)
        backends = zip(rows["page"].to_pylist(), rows["backend"].to_pylist(), strict=True)
        self._part_of |= dict.fromkeys(backends, self._last)

    def add_picture(self, page: CleanPage) -> None:
        """The picture of a page without boxes, for all backends."""
        with writing(self.directory):
            page.write(self.directory)

    def facts(self, continued: bool) -> Iterator[OcrResult]:
        """Every result without its text and tokens; with those of the run that it continues, or without."""
        blank = dict.fromkeys(SCHEMA.names)
        for table in self._chosen(continued, list(_FACTS)):
            for row in table.to_pylist():
                result = result_of(blank | row | {"text_raw": ""})
                if result is not None:
                    inputs = result.inputs and replace(result.inputs, prompt_ids=())
                    yield replace(result, inputs=inputs)

    # --- the end --------------------------------------------------------------------------------

    def write(
        self, record: RunRecord, target: Path, continued: bool = True, count: CountRows | None = None
    ) -> None:
        """Write the run into a directory, but for its pictures, which stay where they are."""
        shapes: dict[str, dict[Shape, None]] = {}
        counts: dict[str, int] = {}
        pictures: dict[str, Path] = {}
        with writing(target), ExitStack() as stack:
            target.mkdir(parents=True, exist_ok=True)
            writers: dict[str, pq.ParquetWriter] = {}

            def add(name: str, table: pa.Table) -> None:
                if not len(table):
                    return
                if name not in writers:
                    file = target / f"{name}.parquet"
                    writer = pq.ParquetWriter(file, TABLES[name], compression="zstd", compression_level=1)
                    writers[name] = stack.enter_context(writer)
                writers[name].write_table(table)
                counts[name] = counts.get(name, 0) + len(table)

            for table in self._chosen(continued):
                table = with_run_id(table, record.id)
                add("readings", table)
                for backend, of_backend in own_shapes(table.select(COLUMNS).to_pylist()).items():
                    shapes.setdefault(backend, {}).update(dict.fromkeys(of_backend))
                add("timings", rows_to_table("timings", record.id, timing_rows(table)))
                more = table["more_pages"].combine_chunks().flatten().field("sha256")
                for sha256 in (*table["sha256"].to_pylist(), *more.to_pylist()):
                    if (name := clean_path(sha256)) and (self.directory / name).exists():
                        pictures[name] = self.directory / name
            rows = count(record.config, record.dtype, shapes) if count else []
            add("stage_flops", rows_to_table("stage_flops", record.id, rows))
            add("parity", rows_to_table("parity", record.id, list(self._parity(continued))))
        with writing(target):
            seal(target, record, {name: counts[name] for name in TABLES if name in counts}, pictures)

    def finish(self, record: RunRecord, count: CountRows | None = None) -> None:
        """Make the directory that run."""
        shutil.rmtree(self._parts / _WHOLE, ignore_errors=True)
        self.write(record, self._parts / _WHOLE, count=count)
        with writing(self.directory):
            sync_tree(self._parts / _WHOLE)
            self._parts.rename(self.directory / _FINISHED)
            self._settle()

    def copy_to(self, target: Path) -> None:
        """Have the run in another directory, too, or the pictures of one that `write` put there: a file under
        two names where the system has that."""
        own = self.directory if read_checksums(target) is None else target
        with writing(target):
            for name in [*(read_checksums(own) or ()), CHECKSUMS]:
                if not (target / name).exists():
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    _link(self.directory / name, target / name)

    def _settle(self) -> None:
        """Put a whole run in its place. Raises OSError."""
        finished = self.directory / _FINISHED
        if not finished.is_dir():
            return
        whole = finished / _WHOLE
        for file in sorted(whole.iterdir(), key=lambda file: (file.suffix != ".parquet", file.name)):
            file.replace(self.directory / file.name)
        named = read_document((self.directory / "run.json").read_bytes())["tables"]
        for name in TABLES.keys() - named.keys():
            (self.directory / f"{name}.parquet").unlink(missing_ok=True)
        shutil.rmtree(finished)

    # --- rows -----------------------------------------------------------------------------------

    def _files(self) -> list[tuple[int, Path]]:
        """Files of readings with their numbers, the run's own, 0, first."""
        whole = self.directory / "readings.parquet"
        parts = sorted(self._parts.glob("*.parquet"))
        return [*([(0, whole)] if whole.exists() else []), *((int(part.stem), part) for part in parts)]

    def _known(self, file: Path) -> list[dict[str, Any]]:
        try:
            if not pq.read_schema(file).equals(SCHEMA):
                raise StorageError(f"{file}: has the columns of another version: give another --out")
            rows: list[dict[str, Any]] = read_rows(file, columns=_KNOWN).to_pylist()
            return rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StorageError(f"{file}: cannot be read ({one_line(error, 200)})") from error

    def _take_up(self, number: int, row: dict[str, Any]) -> None:
        key, done = (row["page"], row["backend"]), None
        image = None if row["path"] is None else Path(text_name(row["path"]))
        if row["error"] is None and row["key"] is not None and image is not None:
            done = Done(row["backend"], row["source"], row["key"], image)
        self._last, self._part_of[key], self._done[key] = max(self._last, number), number, done
        self._paths[row["page"]] = self._paths.get(row["page"]) or (str(image.resolve()) if image else None)

    def _chosen(self, continued: bool, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows that count, some at a time."""
        waiting: list[pa.Table] = []
        for number, file in self._files():
            if not number and not continued:
                continue
            names = None if columns is None else [*columns]
            for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=names):
                table = pa.Table.from_batches([batch]).replace_schema_metadata()
                keys = zip(table["page"].to_pylist(), table["backend"].to_pylist(), strict=True)
                counts = [self._part_of[key] == number for key in keys]
                waiting.append(table if all(counts) else table.filter(pa.array(counts)))
            if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _parity(self, continued: bool) -> Iterator[Row]:
        """A row a page, of the last time that both sides read it; none where one was read since alone."""
        found: dict[str, Row | None] = {}
        earlier = self.directory / "parity.parquet"
        if continued and earlier.exists():
            for row in read_rows(earlier).to_pylist():
                found[row["page"]] = {name: value for name, value in row.items() if name != "run_id"}
        for number, file in self._files():
            if number:
                parity = parse_value(pq.read_schema(file).metadata[_PARITY.encode()])
                pages = read_rows(file, columns=["page"])["page"].to_pylist()
                found |= dict.fromkeys(pages, parity)
        return iter([row for row in found.values() if row is not None])


def is_begun(directory: Path) -> bool:
    """Look whether a run is being written there, or a writer of one was stopped."""
    return any((directory / name).is_dir() for name in (UNFINISHED, _FINISHED))


def run_rows(directory: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of readings of the run in a directory, some at a time; columns left out are None."""
    file = directory / "readings.parquet"
    blank = dict.fromkeys(SCHEMA.names)
    if file.exists():
        for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=[*columns]):
            for row in batch.to_pylist():
                yield blank | row


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
