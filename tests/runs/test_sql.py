"""What people may ask: everything that is a question, and nothing that writes or reads elsewhere."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import READABLE, History, HistoryError
from dsocr_core.runs.schema import TABLES as OF_A_RUN
from dsocr_core.runs.statements import Limits
from tests.support.made_up_runs import timing, write_run

TABLES = ("runs", "timings", "readings")
"""One of each kind: a table of the index with what came later, a view over those, a statement's own view."""

_CHANGES = (
    "INSERT INTO {t} SELECT * FROM {t}", "DELETE FROM {t}", "UPDATE {t} SET run_id = 'x'", "DROP TABLE {t}",
    "DROP VIEW {t}", "ALTER TABLE {t} ADD COLUMN more INTEGER", "CREATE OR REPLACE TABLE {t} AS SELECT 1",
    "COPY {t} FROM '{file}'",
)  # fmt: skip
_OTHERS = (
    "COPY readings TO '{file}'", "COPY (FROM readings) TO '{directory}/run.json' (FORMAT csv)",
    "WITH gone AS (DELETE FROM runs RETURNING *) SELECT * FROM gone", "ATTACH '{directory}/new.duckdb'",
    "EXPLAIN ANALYZE COPY readings TO '{file}'", "EXPORT DATABASE '{directory}/all'",
    "SET enable_external_access = true", "SET lock_configuration = false", "SET memory_limit = '1GB'",
    "PRAGMA enable_profiling", "INSTALL httpfs", "CREATE PERSISTENT SECRET s (TYPE s3)",
    "SELECT * FROM read_text('/etc/hostname')", "FROM '/etc/passwd'", "FROM glob('/etc/*')", "FROM '{file}'",
    "FROM read_parquet('{file}')", "FROM read_json('{directory}/run.json')",
    "FROM parquet_metadata('{file}')", "FROM 'http://127.0.0.1:1/x.parquet'",
)  # fmt: skip
_PASSING = (
    "CREATE TEMP TABLE x AS SELECT 1", "LOAD json", "BEGIN", "PREPARE q AS DELETE FROM runs", "CHECKPOINT",
    "SELECT 1; SELECT 2", "UPDATE EXTENSIONS",
)  # fmt: skip
"""What the database may let pass."""
_OF_THE_STATEMENT = "(DROP|ALTER) (VIEW|TABLE) images"
"""What changes only the statement's own connection, which ends with it."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    root = tmp_path_factory.mktemp("sql")
    write_run(root, "a", [timing("p", "sam", 1.0)])
    with History(root) as opened:
        opened.note("a", "mine")
        yield opened


def content(history: History) -> dict[Path, bytes]:
    files = [history._made.path, *Path(history.storage.location).rglob("*")]
    return {path: path.read_bytes() for path in sorted(files) if path.is_file()}


@pytest.mark.parametrize("past", [True, False], ids=["database", "words"])
def test_what_would_write_or_reads_elsewhere_is_refused(
    history: History, monkeypatch: pytest.MonkeyPatch, past: bool
) -> None:
    """By the database itself, past the check of the statement's kind, and in better words before it."""
    before, directory = content(history), Path(history.storage.location) / "runs" / "a"
    changes = [change.replace("{t}", table) for change in _CHANGES for table in TABLES]
    statements = [*(changes if past else changes[::5]), *_OTHERS, *([] if past else _PASSING)]
    if past:
        monkeypatch.setattr("dsocr_core.runs.history.select_only", lambda _: None)
    for statement in statements:
        try:
            history.sql(statement.format(file=directory / "readings.parquet", directory=directory))
            assert past and re.search(_OF_THE_STATEMENT, statement), statement
        except HistoryError as refused:
            assert "SQL" in str(refused) and "\n" not in str(refused)
    assert content(history) == before
    assert history.sql("SELECT run_id FROM runs")["run_id"].tolist() == ["a"]


def test_every_table_that_can_be_read_is_listed_with_its_columns(history: History) -> None:
    listed = history.sql(READABLE).set_index("name")["columns"]
    of_all = {"runs", "facts", "annotations", "timings", "marks", "page_totals"}
    assert {*of_all, *OF_A_RUN, "readings", "boxes"} <= set(listed.index)
    assert listed["marks"] == "run_id, tags, note, trashed"
    for name in (*TABLES, "marks", "page_totals"):
        assert history.sql(f"FROM {name} LIMIT 0").columns.tolist() == listed[name].split(", "), name
    counts = " UNION ALL ".join(
        f"SELECT count(*) FROM (SELECT {columns} FROM {name})" for name, columns in listed.items()
    )
    assert len(history.sql(counts)) == len(listed)


_ENDLESS = "SELECT sum(hash(range)) FROM range(1000000000000)"


@pytest.mark.parametrize(
    ("statement", "limits", "words"),
    [
        ("SELECT * FROM range(10000000000)", Limits(mebibytes=32), "more than 32 MiB, the memory limit"),
        (
            "SELECT string_agg(range::VARCHAR) FROM range(1000000000)",
            Limits(mebibytes=32),
            "more than 32 MiB",
        ),
        (_ENDLESS, Limits(seconds=0.1), r"no answer in 0\.1 s, the time limit"),
    ],
)
def test_a_statement_has_limits(history: History, statement: str, limits: Limits, words: str) -> None:
    with pytest.raises(DsocrError, match=words) as refused:
        history.sql(statement, limits)
    assert "\n" not in str(refused.value)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("history sql")]
    assert len(history.sql("SELECT 1", Limits(mebibytes=32))) == 1  # the next one is answered


def test_ctrl_c_ends_a_statement(history: History) -> None:
    def interrupt() -> None:
        while not any(thread.name.startswith("history sql") for thread in threading.enumerate()):
            pass  # it watches the statement's time: the statement runs
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what it runs in the background without the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            history.sql(_ENDLESS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(history.sql("SELECT 1")) == 1
