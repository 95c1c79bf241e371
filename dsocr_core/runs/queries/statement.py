"""Statements of a person that are run."""

from __future__ import annotations

import re

import duckdb

from dsocr_core.base.errors import one_line


def select_only(statement: str) -> str | None:
    """Why a statement of a person is not run; None when it is one SELECT, or the explanation of one.

    What a SELECT itself may not do, the database refuses (`snapshot`).
    """
    try:
        statement.encode()
        statements = duckdb.extract_statements(statement)
        kinds = [each.type for each in statements]
        if kinds == [duckdb.StatementType.EXPLAIN]:
            # EXPLAIN ANALYZE runs what it explains.
            kinds = [each.type for each in duckdb.extract_statements(_EXPLAIN.sub("", statement, count=1))]
    except (duckdb.Error, UnicodeEncodeError) as error:
        return f"SQL: {one_line(error, 500)}"
    except ValueError:  # a kind for which DuckDB's Python package has no name
        return _NO_SELECT
    if len(statements) != 1:
        return "SQL: give one statement"
    return None if kinds == [duckdb.StatementType.SELECT] else _NO_SELECT


_NO_SELECT = "SQL: only SELECT can be run here; the history is changed by its own commands"

_EXPLAIN = re.compile(r"\s*EXPLAIN\s*(\([^()]*\)|(ANALYZE\b)?)", re.IGNORECASE)
