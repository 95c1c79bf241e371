"""One question to the history: its SQL, and its parameters, which are bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dsocr_core.runs.schema import relation

_FILES = "read_parquet($files)"
REQUIRED: Any = ...
"""Default of a parameter that has to be given."""


@dataclass(frozen=True)
class Query:
    """One question. `table` names a table or view that is read from the files of the chosen runs."""

    why: str
    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    table: str | None = None

    @property
    def asked(self) -> str:
        """The SQL as it is run: views in their own words."""
        return self.sql.replace(_FILES, relation(self.table, _FILES)) if self.table else self.sql

    def chosen(self, values: Mapping[str, Any]) -> list[str]:
        """The runs that the values name."""
        return list(values["run_ids"]) if "run_ids" in self.parameters else [values["a"], values["b"]]

    def shown(self, values: Mapping[str, Any]) -> str:
        """The SQL with its values written in, for people to run."""
        text = self.sql.strip().replace(_FILES, self.table or "")
        # In one pass: a value may hold a parameter's name.
        return re.sub(r"\$([a-z_]+)", lambda found: literal(values[found[1]]), text)


def literal(value: Any) -> str:
    """A value as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(literal(item) for item in value)}]"
    return "'" + str(value).replace("'", "''") + "'"


class Questions(dict[str, Query]):
    """Questions by their names."""

    def ask(self, name: str, why: str, sql: str, table: str | None = None, **parameters: Any) -> None:
        self[name] = Query(why, sql, parameters, table)
