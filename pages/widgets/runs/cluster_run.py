"""State of a run over a cluster, as its output directory tells it: totals, workers, failures; drawn anew."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import duration, plural, significant
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import Figures, Status, StatusReader
from pages.widgets.runs.address import key, value
from pages.widgets.shared import figure, table
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.table import Column
from pages.widgets.streamlit_mends import rerun_page

POLL_S = 2.0
_READER = "runs cluster reader"
MOST_WORKERS = 1000


def draw() -> None:
    st.text_input("Output of the run", key=key("output"), placeholder="its --out: a directory or a URL")
    location = value("output").strip()
    if not location:
        st.caption("`dsocr run ... --cluster local --out DIR` writes one; it is read here as it grows.")
        return
    # Once it is complete, nothing changes any more.
    held = st.session_state.get(_READER)
    done = held is not None and held[0] == location and held[2]
    st.fragment(_draw, run_every=None if done else POLL_S)(location)


def _draw(location: str) -> None:
    if value("output").strip() != location:
        return
    try:
        reader = _reader(location)
        status = reader.read()
    except DsocrError as error:
        show_error(error)
        return
    was_complete = st.session_state[_READER][2]
    st.session_state[_READER] = (location, reader, status.complete)
    _totals(status, reader.figures)
    workers = worker_rows(reader.figures)
    if len(workers):
        slow = reader.figures.stragglers
        words = plural(len(reader.figures.workers), "worker") + ", the slowest first"
        if slow:
            words += f"; stragglers: {', '.join(slow[:5])}"
        figure.head(words, workers=workers, reproduce=f"dsocr status {location}")
        table.draw(workers.head(MOST_WORKERS), _WORKERS, "")
    causes = cause_rows(reader.figures.causes)
    if len(causes):
        count = plural(int(causes["pages"].sum()), "page")
        figure.head(f"{count} failed or quarantined, by cause", causes=causes)
        table.draw(causes)
    if status.complete and not was_complete:
        rerun_page()  # ends the polling


def _reader(location: str) -> StatusReader:
    """The session's own: it reads what is new since it looked last."""
    held = st.session_state.get(_READER)
    if held is None or held[0] != location:
        held = st.session_state[_READER] = (location, StatusReader(Output(location)), False)
    reader: StatusReader = held[1]
    return reader


def _totals(status: Status, figures: Figures) -> None:
    finished = status.pages - status.left
    state = "complete" if status.complete else "not complete"
    looked = f"{finished:,} of {status.pages:,} pages, {state}; looked at {_utc(time.time())} UTC"
    st.progress(finished / status.pages if status.pages else 0.0, text=plain(looked))
    speed = status.pages_per_s
    shown = {
        "Read": f"{status.done:,}",
        "Failed": f"{status.failed:,}",
        "Quarantined": f"{status.quarantined:,}",
        "Pages/s": significant(speed) if speed else "not measured",
        "Left": "nothing" if status.complete else _left(status),
        "Workers": f"{len(figures.workers):,}",
    }
    for column, (name, figure_) in zip(st.columns(len(shown)), shown.items(), strict=True):
        column.metric(name, figure_, help=_ABOUT.get(name))


_ABOUT = {
    "Failed": "Pages that could not be read. `dsocr run ... --redo failed` reads them again.",
    "Quarantined": "Pages that ended every process that read them: they were found, and left out.",
    "Pages/s": "All workers that take part, in their last five minutes.",
}


def _utc(since_1970_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(since_1970_s))


def _left(status: Status) -> str:
    return duration(1e3 * status.left / status.pages_per_s) if status.pages_per_s else "not known"


_WORKERS = {
    "worker": Column("worker"), "pages": Column("pages", "count"), "pages/s": Column("pages/s", ""),
    "failed": Column("failed", "count", "With those that are quarantined."),
    "prefill ms/page": Column("prefill / page", "ms"), "decode ms/page": Column("decode / page", "ms"),
    "tokens/page": Column("tokens/page", "count"),
    "last commit (UTC)": Column("last commit (UTC)"), "straggler": Column("straggler"),
}  # fmt: skip


def worker_rows(figures: Figures) -> pd.DataFrame:
    """A row a worker, the slowest first."""
    slow = set(figures.stragglers)
    ordered = sorted(figures.workers.values(), key=lambda worker: worker.pages_per_s or 0.0)
    rows = [
        {
            "worker": worker.name,
            "pages": worker.pages,
            "pages/s": worker.pages_per_s,
            "failed": worker.failed,
            "prefill ms/page": worker.a_page(worker.stages.get("prefill")),
            "decode ms/page": worker.a_page(worker.stages.get("decode")),
            "tokens/page": worker.a_page(worker.tokens),
            "last commit (UTC)": _utc(worker.ended),
            "straggler": "straggler" if worker.name in slow else "",
        }
        for worker in ordered
    ]
    return pd.DataFrame(rows)


def cause_rows(causes: Mapping[str, int]) -> pd.DataFrame:
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    return pd.DataFrame(ordered, columns=["cause", "pages"])
