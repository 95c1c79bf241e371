"""The history: runs of some directories, asked through one DuckDB file that is made from their Parquet."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset

from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import PROJECT_ROOT, RUNS_DIRECTORY, cache_directory
from dsocr_core.base.uses import Uses
from dsocr_core.runs import statements
from dsocr_core.runs.annotations import Annotations
from dsocr_core.runs.checksums import read_checksums, verify
from dsocr_core.runs.history_file import HistoryFile, OpenFile, connect
from dsocr_core.runs.ingest import Run, put
from dsocr_core.runs.queries import QUERIES, VIEWS, named
from dsocr_core.runs.queries.query import Query, literal
from dsocr_core.runs.queries.runs import NOTED
from dsocr_core.runs.record import OTHER_VERSION, RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import TABLES
from dsocr_core.runs.statements import Limits, select_only
from dsocr_core.runs.storage import EntryGone, Leftover, RunStorage

T = TypeVar("T")
Names = Sequence[str] | None

DEFAULT_LOCATION = RUNS_DIRECTORY / "history"
EXAMPLE = "example"  # tag of the runs that come with the project
SEED_LOCATION = PROJECT_ROOT / "data" / "history_seed"  # which lie there and are only read

_TRIES = 3
_MOST_KEPT_ROWS = 500_000  # of an answer whose parts are kept for the next time
_OF_A_FILE = (
    duckdb.IOException, duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException,
)  # fmt: skip
"""Errors of a person's statement that a damaged or deleted file explains."""
READABLE = f"""
SELECT table_name AS name, string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns()
WHERE (NOT internal AND table_name <> 'answer')
   OR table_name IN ({", ".join(map(literal, [*TABLES, *VIEWS]))})
GROUP BY name ORDER BY name
"""
"""Statement that lists every table that one can read, with its columns; naming them makes them there."""


class HistoryError(DsocrError):
    """A question the history cannot answer: no such run, SQL that is not a SELECT."""


class History:
    """All runs of some directories.

    Any thread may call anything, `close` too: what others ask then ends with Closed. New runs of other
    processes are there after `refresh`.
    """

    def __init__(self, *roots: str | Path, cache: Path | None = None) -> None:
        """Opens or makes the file of what is there; the first root alone is written. Raises StorageError."""
        self._roots = [RunStorage(root) for root in roots or (DEFAULT_LOCATION,)]
        self.storage = self._roots[0]
        self._uses = Uses("the history")
        self._annotations = Annotations(self._roots)
        self._made = HistoryFile(self._roots, cache or cache_directory(), self._uses, self._annotations)
        self._refreshing = threading.Lock()
        self._parts_answered: dict[str, dict[Hashable, pd.DataFrame]] = {}
        """By question and part: one more run changes the last part alone."""
        self.state_of_runs: Hashable = object()
        """Another one once a run came or went: what was answered before is out of date."""
        self.state: Hashable = object()
        """Another one once something was noted, too."""
        try:
            self._made.refresh()
            self._annotations.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Interrupt what other threads ask, and wait for them. May be repeated."""
        self._uses.end()
        self._made.close()

    @property
    def _file(self) -> OpenFile:
        """The open file. Raises Closed."""
        self._uses.check()
        assert self._made.opened is not None
        return self._made.opened

    # --- bringing it up to date -----------------------------------------------------------------

    def refresh(self) -> int:
        """Take in what was added or removed since. Returns how many runs came or went."""
        with self._uses.use(), self._refreshing:
            # A damaged file may be whole again without a change of the directory that it lies in.
            return self._refresh(every=bool(self._file.damaged))

    def _refresh(self, every: bool = False, anew: bool = False) -> int:
        """`every`: look into each folder, also where nothing seems to have changed; `anew`: make the file."""
        was = self._file
        self._made.refresh(every, anew)
        before, after = was.entries, self._file.entries
        changed = [run_id for run_id in {**before, **after} if before.get(run_id) != after.get(run_id)]
        if self._annotations.refresh() or changed or self._file.damaged != was.damaged:
            self.state = object()  # after the file: what is made between has the older state
        if changed:
            self.state_of_runs = self.state
        return len(changed)

    @property
    def problems(self) -> dict[str, str]:
        """Entries that cannot be read, with the file and the cause; those in the trash are not among them."""
        damaged = self.damaged()
        shown = damaged.keys() - self.trashed() if damaged else ()
        there = {f"runs/{run_id}": why for run_id, why in damaged.items() if run_id in shown}
        return there | {f"annotations/{name}": why for name, why in self._annotations.damaged.items()}

    def damaged(self) -> dict[str, str]:
        """Damaged runs by id, those in the trash too."""
        return dict(self._file.damaged)

    def of_other_versions(self) -> dict[str, str]:
        """Runs by id that another version of the program recorded, with what to do: not read, not damaged."""
        return {run_id: why for run_id, why in self._file.damaged.items() if OTHER_VERSION in why}

    # --- asking ---------------------------------------------------------------------------------

    def query(self, name: str, **parameters: Any) -> tuple[pd.DataFrame, str]:
        """The answer to a question of `queries.QUERIES`, and the SQL that a person can run for it."""
        query = QUERIES[name]
        values = {
            key: [*value] if isinstance(value, (tuple, set)) else value
            for key, value in {**query.optional, **parameters}.items()
        }
        asked = values.get("run_ids", [values["a"], values["b"]] if "a" in values else None)

        def answer() -> pd.DataFrame:
            wanted = None if asked is None else {*asked}
            runs = [run for run in self._file.entries.values() if wanted is None or run.id in wanted]
            parts = self._parts(runs, query.together) if query.together else [runs]
            if len(parts) > 1:
                return self._of_parts(name, query, values, parts)
            return self._frame(query.sql, values, runs)

        return self._ask(answer), query.shown(values)

    def _parts(self, runs: Sequence[Run], most: int) -> list[list[Run]]:
        """Runs in parts, in their order, of about so many pages; a further run changes the last one alone."""
        counted = "SELECT run_id, sum(pages) FROM page_totals GROUP BY run_id"
        pages = dict(self._frame(counted, {}).itertuples(index=False))
        so_far = itertools.accumulate(pages.get(run.id, 0) for run in runs)  # an imported run has none
        numbered = itertools.groupby(zip(so_far, runs, strict=True), lambda run: run[0] // most)
        return [[run for _, run in part] for _, part in numbered] or [[]]

    def _of_parts(
        self, name: str, query: Query, values: Mapping[str, Any], parts: Sequence[Sequence[Run]]
    ) -> pd.DataFrame:
        """The answer, asked part by part; parts whose runs did not change since are kept."""
        before, noted = self._parts_answered.get(name, {}), len(self._annotations.rows)
        keys = [(noted, *((run.id, run.version) for run in of)) for of in parts]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            asked = {
                key: threads.submit(self._frame, query.sql, {**values, "run_ids": [run.id for run in of]}, of)
                for key, of in zip(keys, parts, strict=True)
                if key not in before
            }
        frames = [asked[key].result() if key in asked else before[key] for key in keys]
        if sum(map(len, frames)) <= _MOST_KEPT_ROWS:
            self._parts_answered[name] = dict(zip(keys, frames, strict=True))
        whole = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
        return whole.infer_objects()  # of a part without any value the type was not known

    def _frame(
        self, sql: str, values: Mapping[str, Any], runs: Sequence[Run] = (), by_arrow: bool = False
    ) -> pd.DataFrame:
        """The answer to a statement; tables of runs have the rows of these runs."""
        with self._made.cursor() as cursor:
            try:
                statement = self._provide(cursor, sql, runs, by_arrow)
                frame: pd.DataFrame = cursor.execute(statement, dict(values)).df()
                return frame
            except (duckdb.BinderException, duckdb.InvalidInputException):
                if by_arrow:
                    raise
        return self._frame(sql, values, runs, by_arrow=True)

    def _provide(
        self, connection: duckdb.DuckDBPyConnection, sql: str, runs: Sequence[Run], by_arrow: bool = True
    ) -> str:
        """Give a connection the tables, with the rows of these runs, and the views that a statement names.

        `by_arrow`, which takes longer: also where a run lacks a column, and without access to files. Else the
        statement that is returned has them in it: views would be planned twice.
        """
        within = list[str]()
        for name in named(sql):
            files = [file for run in runs for file in run.files(name)]
            if by_arrow and name in VIEWS:
                connection.execute(f"CREATE TEMP VIEW {name} AS {VIEWS[name]}")
            elif name in VIEWS or (files and not by_arrow):
                of = VIEWS.get(name, f"FROM read_parquet({literal(files)})")
                within.append(f"{name} AS NOT MATERIALIZED ({of})")
            else:
                connection.register(name, dataset(files, schema=TABLES[name], format="parquet"))
        between = ", " if sql.strip().startswith("WITH ") else " "
        return f"WITH {', '.join(within)}{between}{sql.strip().removeprefix('WITH ')}" if within else sql

    def _ask(self, ask: Callable[[], T], by_a_person: bool = False) -> T:
        """Ask; again when a run went away or was damaged since, or the file is. Raises HistoryError."""
        faults = _OF_A_FILE if by_a_person else (duckdb.Error,)
        with self._uses.use():
            for left in reversed(range(_TRIES)):
                file = self._file
                try:
                    return ask()
                except (EntryGone, duckdb.Error, pa.ArrowException, OSError) as error:
                    self._uses.check()
                    # Of a damaged block DuckDB raises its base class.
                    of_a_file = not isinstance(error, duckdb.Error) or isinstance(error, faults)
                    if not left or not (of_a_file or type(error) is duckdb.Error):
                        what = f"{'SQL' if by_a_person else 'the history'}: {one_line(error, 500)}"
                        raise HistoryError(what) from error
                    with self._refreshing:
                        if self._file is file:
                            self._refresh(every=True)
                        if self._file is file:  # all runs are as they were
                            self._refresh(anew=True)
            raise AssertionError

    def sql(self, statement: str, limits: Limits = Limits()) -> pd.DataFrame:  # noqa: B008 - immutable
        """The answer to one SELECT over the tables of `schema.TABLES`, `runs`, `facts`, `marks` ...

        Raises HistoryError, DsocrError.
        """
        if reason := select_only(statement):
            raise HistoryError(reason)

        def tables(connection: duckdb.DuckDBPyConnection) -> None:
            connect(connection, self._made.path)
            put(connection, NOTED, self._annotations.rows)
            self._provide(connection, statement, [*self._file.entries.values()])

        return self._ask(lambda: statements.answer(tables, statement, limits, self._uses), by_a_person=True)

    def runs(self, **filters: Any) -> pd.DataFrame:
        """The runs that pass the filters of the query `runs`, newest first."""
        return self.query("runs", **filters)[0]

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._file.entries

    def __len__(self) -> int:
        return len(self._file.entries)

    def run_ids(self) -> list[str]:
        """All runs, those in the trash too, oldest first."""
        return list(self._file.entries)

    def runs_with(self, table: str) -> list[str]:
        """Runs that have rows of a table, oldest first; no file is read for it."""
        return [run.id for run in self._file.entries.values() if table in run.tables]

    def record(self, run_id: str) -> RunRecord:
        """Raises HistoryError when there is no such run."""

        def read() -> RunRecord:
            of = {"run_id": self._entry(run_id).id}
            document = self._frame("SELECT document FROM entries WHERE run_id = $run_id", of)["document"]
            return RunRecord.from_json(parse_json(document.item().encode(), any_number=True))

        return self._ask(read)

    def version(self, run_id: str) -> str:
        """A text that changes with any file of the run. Raises HistoryError for one gone or damaged."""

        def read() -> str:
            run = self._entry(run_id)
            if self._roots[run.root].version(run_id) != run.version:
                raise EntryGone(run_id)
            return run.version

        return self._ask(read)

    def tables(self, run_id: str) -> dict[str, pa.Table]:
        """All rows of a run, by table."""
        return {name: self.rows(run_id, name) for name in self._entry(run_id).tables}

    def rows(self, run_id: str, table: str, pages: Names = None, columns: Names = None) -> pa.Table:
        """Rows of a run's table, or those of some pages and columns, as Arrow: exact numbers and lists."""
        schema, columns = TABLES[table], columns and [*columns]
        only = None if pages is None else pc.field("page").isin(pa.array([*pages], pa.string()))

        def read() -> pa.Table:
            files = self._entry(run_id).files(table)
            return dataset(files, schema=schema, format="parquet").to_table(columns, only)

        return self._ask(read)

    def directory(self, run_id: str) -> Path:
        """A run's directory. Raises HistoryError, StorageError."""
        return self._roots[self._entry(run_id).root].directory(run_id)

    def _entry(self, run_id: str) -> Run:
        if (run := self._file.entries.get(run_id)) is not None:
            return run
        if why := self._file.damaged.get(run_id):
            raise HistoryError(f"run {run_id} is damaged: {why}; see history check")
        raise HistoryError(f"there is no run '{run_id[:60]}'; see: dsocr history list")

    # --- adding and marking ---------------------------------------------------------------------

    def writer(self, record: RunRecord) -> RunDirectory:
        """Open the place where a new run of this history is written. It takes the name of a damaged one."""
        replace = record.id in self.damaged().keys() - self.of_other_versions().keys()
        return RunDirectory.create(self.storage, record, replace=replace)

    def annotate(
        self, run_id: str, kind: str, rows: Iterable[tuple[str | None, str | None, str | None]]
    ) -> None:
        """Add rows about a run, (page, name, value) each: all of them or none.

        The last row of a kind, page and name counts. Kinds: `note` (value is its text), `tag` (name is the
        tag, value on or off), `trash` (on or off), and those of others, like `verdict`.
        """
        self._entry(run_id)
        self._annotate([(run_id, kind, *row) for row in rows])

    def tag(self, run_id: str, tag: str, on: bool = True) -> None:
        self.annotate(run_id, "tag", [(None, tag, "on" if on else "off")])

    def note(self, run_id: str, text: str) -> None:
        self.annotate(run_id, "note", [(None, None, text)])

    def trash(self, run_ids: Iterable[str], value: str = "on") -> None:
        """Hide runs, damaged ones too; `restore` brings them back, `empty_trash` deletes them."""
        damaged = self.damaged()
        ids = [run_id if run_id in damaged else self._entry(run_id).id for run_id in run_ids]
        self._annotate([(run_id, "trash", None, None, value) for run_id in ids])

    def restore(self, run_ids: Iterable[str]) -> None:
        self.trash(run_ids, "off")

    def trashed(self) -> list[str]:
        """Runs in the trash, and what is damaged there."""
        marked = self._ask(lambda: self._frame("SELECT run_id FROM marks WHERE trashed", {}))
        return sorted({*marked["run_id"]} & {*self._file.entries, *self._file.damaged})

    def empty_trash(self) -> int:
        """Delete the runs in the trash for good, those of the history's own location. Returns how many.

        Runs of other versions stay. Raises StorageError.
        """
        self.refresh()
        gone = sorted({*self.trashed()} & self.storage.names() - self.of_other_versions().keys())
        for run_id in gone:
            self.storage.remove(run_id)
        self.refresh()
        return len(gone)

    def _annotate(self, rows: Sequence[tuple[str | None, ...]]) -> None:
        if not rows:
            return
        self.refresh()
        self._annotations.write(self.storage, rows, time.time_ns())
        self.refresh()


@dataclass
class CheckReport:
    """Findings of a check."""

    other_versions: dict[str, str]  # runs that another version of the program recorded: no damage
    leftovers: list[Leftover]  # directories of writers that did not finish
    entries: int
    damaged: list[tuple[str, str]]  # `runs/<id>` or `annotations/<name>`, and why
    files: int = 0  # that are what their checksums say


def check(history: History) -> CheckReport:
    """Hold every file of a history against its checksum; what lies damaged in the trash is not named.

    Raises StorageError.
    """
    history.refresh()
    other = history.of_other_versions()
    damaged = [of for of in sorted(history.problems.items()) if of[0].removeprefix("runs/") not in other]
    report = CheckReport(other, history.storage.leftovers(), len(history), damaged)
    for run_id in history.run_ids():
        try:
            checksums = read_checksums(history.directory(run_id))
        except DsocrError as error:
            damaged.append((f"runs/{run_id}", str(error)))
            continue
        for name in sorted(checksums):
            try:
                verify(history.directory(run_id), checksums, [name])
                report.files += 1
            except DsocrError as error:
                damaged.append((f"runs/{run_id}", str(error)))
    return report
