"""The tab *Ladder*: what fewer bits cost in text, of a run that `measure ladder --save` recorded."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes
from pages.widgets.shared import figure, plots, table
from pages.widgets.shared.labels import mark
from pages.widgets.shared.table import Column
from pages.widgets.timing.sidebar import Shown

FILE = "ladder.json"
_LOOKED_AT = 100
"""Newest runs that are looked at for a ladder."""
_LIMIT = 4 * 1024 * 1024
"""Bytes of a file."""

COLUMNS = {
    "title": Column("rung", left=True),
    "bytes_a_token": Column("a token", "B", "Weights and cache that a token reads by itself."),
    "memory_bytes": Column("memory", "B", "The decoder's weights and all slots' caches."),
    "tokens_per_s": Column("tokens/s", "number", "Where the rung is real.", width=104),
    "pages_per_s": Column("pages/s", "", width=104),
    "agreement": Column("agreement", "share", "The base's choice, fed the base's tokens."),
    "divergence": Column("KL", "{:.2g}".format),
    **{name: Column(name, "count") for name in ("identical", "within", "differing", "loops")},
    "values_changed": Column("values", "count", "Values that changed."),
    "boxes_moved": Column("boxes", "count", "Boxes moved, or without a partner."),
    "at_limit": Column("at limit", "count"),
    "error": Column("CER", "share"),
    "error_clean": Column("ended", "share", "CER without pages that loop or ran to the limit."),
}


def draw(shown: Shown) -> None:
    """The newest ladder that passes the filters."""
    newest = shown.runs["run_id"].head(_LOOKED_AT).tolist()
    found = [run_id for run_id in newest if FILE in shown.history.file_names(run_id)]
    if not found:
        st.info("No ladder passes the filters: `dsocr measure ladder PAGES --save` records one.")
        return
    try:
        rows = ladder_rows(parse_json(read_bytes(shown.history.file(found[0], FILE), _LIMIT)))
    except (Refused, DsocrError, KeyError, TypeError, ValueError):
        st.error(f"{found[0]}: its {FILE} is not whole; record the ladder again.")
        return
    words = f"{shown.names[found[0]][0]}: positions at which a rung does not choose what the base chose."
    figure.head(words, commands=shown.commands(found[0]), ladder=rows)
    figure.plot(missed(rows), "ladder", words)
    table.draw(rows, COLUMNS)


def ladder_rows(document: Any) -> pd.DataFrame:
    """A rung a row, in `COLUMNS`. Raises KeyError or TypeError for a file that is not whole."""
    rows = pd.DataFrame([{name: rung[name] for name in COLUMNS} for rung in document["rungs"]])
    numbers = rows.drop(columns="title").apply(pd.to_numeric)
    return pd.concat([rows["title"].map(str), numbers], axis=1)


def missed(rows: pd.DataFrame) -> Any:
    """Bars of the share of positions that do not agree."""
    known = rows[rows["agreement"].notna()]
    bars = {
        "type": "bar", "orientation": "h", "y": [mark(title, 40) for title in known["title"]][::-1],
        "x": (100 * (1 - known["agreement"])).tolist()[::-1], "hovertemplate": "%{x:.3g} %<extra></extra>",
    }  # fmt: skip
    layout = {
        "height": 70 + 30 * len(known), "margin": {"t": 8, "b": 44}, "xaxis": {"title": {"text": "%"}},
        "yaxis": {"dtick": 1, "automargin": True},
    }  # fmt: skip
    return plots.figure([bars], layout)
