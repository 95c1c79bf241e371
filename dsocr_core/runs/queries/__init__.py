"""Every question that the pages and the command line ask the history, and the views that one can name.

A question's text never changes with what is asked; values travel with it. What a page shows as "the SQL"
has the values written in, quoted, so that it runs as it stands in `history sql`.
"""

from __future__ import annotations

import re

from dsocr_core.runs import schema
from dsocr_core.runs.queries import gaps, runs, times
from dsocr_core.runs.queries.query import Query

QUERIES: dict[str, Query] = {**runs.QUERIES, **times.QUERIES, **gaps.QUERIES}
VIEWS: dict[str, str] = {**schema.VIEWS, **gaps.VIEWS}
"""SELECTs by name; each names only those before it."""


def named(statement: str) -> list[str]:
    """Tables outside of the index, and views, that a statement needs, each after those that it is made of."""
    words = {*re.findall(r"\w+", statement.lower())}
    for name, sql in reversed(VIEWS.items()):
        if name in words:
            words |= {*re.findall(r"\w+", sql.lower())}
    return [name for name in (*schema.TABLES, *VIEWS) if name in words]
