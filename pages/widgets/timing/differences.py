"""What two runs do not share beside their times: their records' own fields, settings, environment, versions.

Pure: answers of the history in, a table out.
"""

from __future__ import annotations

import pandas as pd

from dsocr_core.history.sameness import differ
from pages.widgets.shared.labels import has_value, short

FIELDS = {
    "gpu": "GPU", "device": "device", "host": "host", "engine": "engine", "dtype": "number type",
    "attention": "attention", "preset": "preset", "git_commit": "commit", "git_dirty": "uncommitted changes",
    "profiled": "profiled", "source": "made by",
}  # fmt: skip
"""What a run says of itself as a whole, with its words."""
_SECTIONS = {"settings": "settings", "environment": "environment", "versions": "version"}
_NOT_KNOWN = "not known"


def differences(runs: pd.DataFrame, facts: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """What A and B differ in: columns what, A, B; a value that only one of them has is such a difference.

    `runs` is the query `runs` with both; `facts` the query `differences` of the two.
    """
    by_id = runs.set_index("run_id")
    rows = [(words, *(_text(by_id.at[run_id, name]) for run_id in (a, b))) for name, words in FIELDS.items()]
    rows = [row for row in rows if row[1] != row[2]]
    values: dict[tuple[str, str], dict[str, str | None]] = {}
    for row in facts.to_dict("records"):
        key = str(row["section"]), str(row["name"])
        values.setdefault(key, {})[str(row["run_id"])] = _text(row["value"])
    for (section, name), of_run in values.items():
        pair = of_run.get(a), of_run.get(b)
        if differ(section, name, pair):
            rows.append((f"{_SECTIONS.get(section, section)} {short(name, 120)}", *pair))
    return pd.DataFrame(
        [(words, *(_NOT_KNOWN if value is None else short(value, 200) for value in pair))
         for words, *pair in rows],
        columns=["what", "A", "B"],
    )  # fmt: skip


def _text(value: object) -> str | None:
    return str(value) if has_value(value) else None
