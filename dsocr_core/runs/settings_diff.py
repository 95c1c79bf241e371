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
    rows = runs.set_index("run_id").loc[[*run_ids], [*FIELDS]].rename(columns=FIELDS)
    facts = rows.map(_fact).rename_axis("run_id").reset_index().melt("run_id", var_name="name")
    return facts.assign(section="run")


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
    found: dict[tuple[str, str], dict[str, str | None]] = {}
    for run_id, section, name, value in facts[["run_id", "section", "name", "value"]].itertuples(index=False):
        found.setdefault((section, name), {})[run_id] = value if isinstance(value, str) else None
    rows = {key: [values.get(run_id) for run_id in run_ids] for key, values in found.items()}
    shown = [[*key, *row] for key, row in rows.items() if not differing or differ(*key, row)]
    return pd.DataFrame(shown, columns=["section", "name", *run_ids], dtype=object)
