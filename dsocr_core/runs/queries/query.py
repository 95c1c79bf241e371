"""One question to the history: its SQL and its parameters, which are bound; the table of listed runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dsocr_core.reading.records import POLICY_FIELDS
from dsocr_core.runs.labels import PUBLISHED
from dsocr_core.runs.record import flattened
from dsocr_core.runs.schema import relation, stored
from dsocr_core.settings import InferSettings

_FILES = re.compile(r"read_parquet\(\$(\w+)\)")
REQUIRED: Any = ...
"""Default of a parameter that has to be given."""


@dataclass(frozen=True)
class Query:
    """One question. `read_parquet($table)` in it are rows of a table or view, of the chosen runs' files."""

    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """Tables and views that are read from files."""
        return list(dict.fromkeys(_FILES.findall(self.sql)))

    def asked(self, files: Collection[str]) -> str:
        """The SQL as it is run: views in their own words, `no_TABLE` has the columns of a table; `files` are
        the tables that there are files of."""

        def rows(found: re.Match[str]) -> str:
            name = found[1]
            more = f" UNION ALL BY NAME FROM read_parquet(${name}, union_by_name = true)"
            return relation(name, f"(FROM no_{stored(name)}{more if name in files else ''})")

        return _FILES.sub(rows, self.sql)

    def chosen(self, values: Mapping[str, Any]) -> list[str]:
        """The runs that the values name."""
        return list(values["run_ids"]) if "run_ids" in self.parameters else [values["a"], values["b"]]

    def shown(self, values: Mapping[str, Any]) -> str:
        """The SQL with its values written in, for people to run."""
        text = _FILES.sub(r"\1", self.sql.strip())
        # In one pass: a value may hold a parameter's name.
        return re.sub(r"\$([a-z_]+)", lambda found: literal(values[found[1]]), text)


def literal(value: Any) -> str:
    """A value as SQL text."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(map(literal, value))}]"
    if value is None or isinstance(value, (int, float)):  # True too
        return "NULL" if value is None else repr(value).lower()
    return "'" + str(value).replace("'", "''") + "'"


# What decides how much work a page is, beside what `runs` has; NULL where a run's settings do not say.
_PUBLISHED = {name: getattr(InferSettings(), name) for name in POLICY_FIELDS}
"""Settings in which other engines differ from the published code, with what it does."""
_names = ", ".join(f"'infer.{name}'" for name in _PUBLISHED)
_published = ", ".join(f"('infer.{name}', '{value}')" for name, value in flattened(_PUBLISHED))
_WORK = f"""
    (
        SELECT run_id, any_value(value) FILTER (name = 'checkpoint') AS checkpoint,
               any_value(value) FILTER (name = 'prompt') AS prompt,
               any_value(value) FILTER (name = 'infer.max_new_tokens') AS max_new_tokens,
               any_value(value) FILTER (name = 'infer.no_repeat_ngram_size') AS no_repeat_ngram_size,
               nullif(any_value(value) FILTER (name = 'draft'), '') AS draft,
               coalesce(
                   string_agg(replace(name, 'infer.', '') || ' ' || value, ', ' ORDER BY name)
                   FILTER (name IN ({_names}) AND (name, value) NOT IN ({_published})),
                   '{PUBLISHED}'
               ) AS policy
        FROM facts SEMI JOIN expected USING (run_id) WHERE section = 'settings' GROUP BY run_id
    ) AS work
"""
LISTED = f"""
    SELECT runs.*, runs.run_id IN (
               SELECT run_id FROM facts SEMI JOIN expected USING (run_id)
               WHERE section = 'environment' AND name = 'machine.contended' AND value = 'true'
           ) AS contended,
           totals.pages, totals.failed, totals.new_tokens,
           parity_totals.pages AS compared, parity_totals.passed, parity_totals.identical,
           parity_totals.within_tolerance, parity_totals.differs, parity_totals.not_comparable,
           work.* EXCLUDE (run_id)
    FROM runs SEMI JOIN expected USING (run_id)
    LEFT JOIN (
        SELECT run_id, max(pages) AS pages, sum(failed) AS failed, sum(new_tokens) AS new_tokens
        FROM page_totals GROUP BY run_id
    ) AS totals USING (run_id)
    LEFT JOIN parity_totals USING (run_id)
    LEFT JOIN {_WORK} USING (run_id)
"""
"""Expected runs with what is filtered by and shown in lists: such joins take longer than asking."""
