"""A question to the history: its SQL and its parameters, which are bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PARAMETER = re.compile(r"\$([a-z_]+)")


@dataclass(frozen=True)
class Query:
    """One question. Its SQL names tables of the index, tables of runs and views, as people's SQL does."""

    sql: str
    optional: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that may be left out, with what they are then."""
    together: int | None = None
    """Pages of the runs that are asked at a time, oldest run first, where there are more: groups of few pages
    fit into the processor's cache. The answer's rows have to be in the order of the runs."""

    def shown(self, values: Mapping[str, Any]) -> str:
        """The SQL with its values written in, for people to run."""
        # In one pass: a value may hold a parameter's name.
        return PARAMETER.sub(lambda found: literal(values[found[1]]), self.sql.strip())


def literal(value: Any) -> str:
    """A value as SQL text."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(map(literal, value))}]"
    if value is None or isinstance(value, (int, float)):  # True too
        return "NULL" if value is None else repr(value).lower()
    return "'" + str(value).replace("'", "''") + "'"
