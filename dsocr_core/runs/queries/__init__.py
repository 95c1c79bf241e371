"""Every question that the pages and the command line ask the history, and the views that one can name.

A question's text never changes with what is asked; values travel with it. What a page shows as "the SQL"
has the values written in, quoted, so that it runs as it stands in `history sql`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dsocr_core.runs import schema
from dsocr_core.runs.queries import gaps, runs, times
from dsocr_core.runs.queries.query import Query

QUERIES: dict[str, Query] = {**runs.QUERIES, **times.QUERIES, **gaps.QUERIES}
VIEWS: dict[str, str] = {**schema.VIEWS, **runs.VIEWS, **gaps.VIEWS}
"""SELECTs by name; each names only those before it."""


def named(statement: str) -> list[str]:
    """Tables of runs, and views, that a statement needs; each after those that it is made of."""
    words = {*re.findall(r"\w+", statement.lower())}
    for name, sql in reversed(VIEWS.items()):
        if name in words:
            words |= {*re.findall(r"\w+", sql.lower())}
    return [name for name in (*schema.TABLES, *VIEWS) if name in words]


def with_tables(statement: str, files: Mapping[str, Sequence[str]], earlier: bool = False) -> str:
    """The statement with all that it needs before it: `$TABLE` are the table's files, `no_TABLE` has its
    columns. `earlier`: also where a file lacks one of them, which takes longer."""
    parts, statement = [], statement.strip()
    for name in named(statement):
        none, rows = f"FROM no_{name}", f"FROM read_parquet(${name})"
        if name in VIEWS:
            rows = VIEWS[name]
        elif name not in files:
            rows = none
        elif earlier:
            rows = f"{none} UNION ALL BY NAME FROM read_parquet(${name}, union_by_name = true)"
        parts.append(f"{name} AS NOT MATERIALIZED ({rows})")
    if not parts:
        return statement
    own = ", " if statement.startswith("WITH ") else " "
    return f"WITH {', '.join(parts)}{own}{statement.removeprefix('WITH ')}"
