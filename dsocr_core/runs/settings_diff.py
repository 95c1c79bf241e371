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


def record_facts(runs: pd.DataFrame, run_ids: Sequence[str]) -> pd.DataFrame:
    """The records' own fields, of the query `runs`, in the form of the query `facts`."""
    by_id = runs.set_index("run_id")
    rows = [
        {"run_id": run_id, "section": "run", "name": words, "value": _fact(by_id.at[run_id, name])}
        for name, words in FIELDS.items()
        for run_id in run_ids
    ]
    return pd.DataFrame(rows, columns=["run_id", "section", "name", "value"])


def _fact(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if hasattr(value, "__len__"):
        return ", ".join(value)
    return None if value is None or pd.isna(value) else "yes" if value else "no"


def side_by_side(facts: pd.DataFrame, run_ids: Sequence[str], differing: bool) -> pd.DataFrame:
    """Facts with a column a run, in the order given: section, name, runs. None where a run has no such value.

    `facts` has run_id, section, name, value; `differing` leaves out what all runs have in common.
    """
    values: dict[tuple[str, str], dict[str, str | None]] = {}
    for row in facts.itertuples(index=False):
        of_name = values.setdefault((str(row.section), str(row.name)), {})
        of_name[str(row.run_id)] = row.value if isinstance(row.value, str) else None
    cells = {key: [of_run.get(run_id) for run_id in run_ids] for key, of_run in values.items()}
    shown = [[*key, *own] for key, own in cells.items() if not differing or differ(*key, own)]
    return pd.DataFrame(shown, columns=["section", "name", *run_ids], dtype=object)
