"""Settings that count when runs are compared, side by side; storage paths do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

FIELDS: Mapping[str, str] = {
    "source": "made by", "backends": "backends", "engine": "engine", "device": "device", "gpu": "GPU",
    "host": "host", "dtype": "number type", "attention": "attention", "preset": "preset",
    "profiled": "profiled", "git_commit": "commit", "git_dirty": "uncommitted changes",
}  # fmt: skip
"""Fields of a record that say where and how a run ran, with their words."""
_NOT_COMPARED = {("settings", name) for name in ("history", *FIELDS)}
"""Place of the record; settings as they were asked for, of which the record has what they came to."""


def differ(section: str, name: str, values: Iterable[str | None]) -> bool:
    """Tell whether runs differ in a value; None, of a run without such a value, differs from one that has."""
    return (section, name) not in _NOT_COMPARED and len(set(values)) > 1


def side_by_side(runs: pd.DataFrame, facts: pd.DataFrame, run_ids: Sequence[str]) -> pd.DataFrame:
    """FIELDS of the query `runs` and values of the query `facts`: section, name, differs, a column a run.

    None where a run has no such value.
    """
    records = runs.set_index("run_id").loc[[*run_ids]]
    rows = [("run", words, map(_text, records[name])) for name, words in FIELDS.items()]
    for (section, name), of in facts.groupby(["section", "name"]):
        values = dict(zip(of["run_id"], of["value"], strict=True))
        rows.append((section, name, map(_text, map(values.get, run_ids))))
    found = [(section, name, [*values]) for section, name, values in rows]
    shown = [[section, name, differ(section, name, values), *values] for section, name, values in found]
    return pd.DataFrame(shown, columns=["section", "name", "differs", *run_ids], dtype=object)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "__len__"):
        return ", ".join(value)
    return None if pd.isna(value) else "yes" if value else "no"
