"""The tab Layers: which block's output differs first between two backends, and how the error goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import duckdb
import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment, plural
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.trace_curve import shortened
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.traces import KeptTrace, other_settings, summary_of, traces_of
from dsocr_core.settings import Settings
from pages.widgets.shared import job_panel, resources, table
from pages.widgets.shared.app_session import TraceChoice, Traced
from pages.widgets.shared.job import Job
from pages.widgets.shared.job_panel import open_tab
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.runner import run_key
from pages.widgets.shared.strip import Strip, strip_html
from pages.widgets.shared.table import Column
from pages.widgets.shared.trace_charts import trace_figure
from pages.widgets.streamlit_mends import rerun_fragment

if TYPE_CHECKING:
    from dsocr_core.runs.history import History
    from dsocr_core.trace.sides import Way

WAYS = ("eager", "vendor", "float32", "fast")
USUAL_STEPS, MOST_STEPS = 8, 500
MOST_ROWS = 400
_HELP = (
    "Both sides read the page with A's tokens while every block's output is recorded; then the outputs are "
    "compared bit by bit. float32 is the exact side."
)


def draw(settings: Settings, comparison: Comparison) -> None:
    """The tab on Compare: a trace of the page on the screen, to the token in which its sides diverge."""
    job: Job[Traced] | None = st.session_state.get("trace job")
    mine = job if job is not None and job.about == run_key(settings, comparison.request) else None
    _controls(settings, comparison, job)
    if mine is not None and mine.running:
        job_panel.draw(mine, "trace")
        return
    if mine is not None:
        took = job_panel.ended(mine, "nothing was recorded")
        if mine.result is not None:
            summary, not_recorded = mine.result
            if not_recorded:
                show_error(not_recorded)
            show(summary, f"traced just now in {took}", "compare layers")
            return
    draw_recorded(comparison, "compare layers", "Press the button: it takes two readings of the page.")


def _controls(settings: Settings, comparison: Comparison, job: Job[Traced] | None) -> None:
    divergence = comparison.report.first_divergence if comparison.report else None
    usual = USUAL_STEPS if divergence is None else min(divergence.index, MOST_STEPS)
    with st.container(horizontal=True, vertical_alignment="bottom", key="layers controls"):
        a = st.selectbox("A", WAYS, index=0, key="trace a", width=120, persist_state="session")
        b = st.selectbox("B", WAYS, index=1, key="trace b", width=120, persist_state="session")
        steps = st.number_input(
            "Decode steps", 0, MOST_STEPS, usual, key=f"trace steps {usual}", width=130,
            persist_state="session", help="Up to the first token that differs, unless you change it.",
        )  # fmt: skip
        running = job is not None and job.running
        pressed = st.button(
            "Find the first difference", type="primary", key="find first", disabled=running, help=_HELP,
            width="content",
        )  # fmt: skip
    if pressed:
        try:
            choice = TraceChoice(cast("Way", a), cast("Way", b), int(steps))
            st.session_state["trace job"] = resources.runner().start_trace(
                settings, comparison.request, choice, open_tab()
            )
        except DsocrError as error:
            show_error(error)
            return
        rerun_fragment()


# --- recorded traces ------------------------------------------------------------------------------


def draw_recorded(comparison: Comparison, key: str, otherwise: str) -> None:
    """The newest trace of a page, one under its readings' settings first, or another of choice."""
    try:
        history = resources.history()
        kept, read = _kept(history, comparison), comparison.results.values()
        other = {one.run_id: other_settings(history, one, read) for one in kept}
        if not kept:
            st.caption(f"No trace of this page is recorded. {otherwise}")
            return
        kept.sort(key=lambda one: bool(other[one.run_id]))
        chosen = kept[0]
        if len(kept) > 1:
            chosen = st.selectbox(
                "Trace", kept, key=f"{key} chosen", width=520,
                format_func=lambda one: _name(one) + " · other settings" * bool(other[one.run_id]),
            )  # fmt: skip
        if other[chosen.run_id]:
            st.warning(plain(f"Traced under other settings: {'; '.join(other[chosen.run_id])}."))
        show(summary_of(history, chosen), f"recorded {moment(chosen.created)}", key)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)


def _kept(history: History, comparison: Comparison) -> list[KeptTrace]:
    history.refresh()
    request, file = comparison.request, None
    if request.image.is_file():
        from dsocr_core.reading.fingerprints import file_of

        file = file_of(request)
    return traces_of(history, request.name, file.sha256 if file else None)


def _name(trace: KeptTrace) -> str:
    return f"{moment(trace.created)}: A {trace.a}, B {trace.b}, {plural(trace.steps, 'step')}"


# --- one trace ------------------------------------------------------------------------------------


def show(summary: TraceSummary, when: str, key: str) -> None:
    """The sentence, the heat map with its curves, and the outputs one by one."""
    st.html(_strip(summary, when))
    for cause in summary.causes[1:]:
        st.caption(plain(f"Also: {cause.words}"))
    if not summary.tensors:
        return
    st.plotly_chart(
        trace_figure(summary), key=f"{key} chart", width="stretch", config={"displayModeBar": False},
        alt=f"Error of every block at every step. {summary.sentence}",
    )  # fmt: skip
    if summary.routers:
        changed, ties = sum(one.changed for one in summary.routers), sum(one.ties for one in summary.routers)
        of_them = f"{plural(changed, 'token')} over all layers and steps, {ties:,} of them at a tie"
        st.caption(f"Other experts were chosen for {of_them}.")
    for side, names in (("A", summary.only_a), ("B", summary.only_b)):
        if names:
            st.caption(plain(f"Only {side} has {shortened(names)}: not compared."))
    if summary.differing:
        with st.expander(f"The outputs that differ ({summary.differing:,} of {summary.compared:,})"):
            _outputs(summary)


def _strip(summary: TraceSummary, when: str) -> str:
    found = summary.first is not None
    facts = (
        f"A {summary.a}, B {summary.b}, {plural(summary.steps, 'decode step')}, "
        f"{summary.differing:,} of {plural(summary.compared, 'output')} differ"
    )
    return strip_html(
        Strip(
            word="FIRST DEVIATION" if found else f"NONE IN {plural(summary.steps, 'STEP')}",
            tone="differs" if found else "none",
            icon="≠" if found else "–",
            facts=(("", summary.sentence), ("", facts)),
            note=when,
        )
    )


def _outputs(summary: TraceSummary) -> None:
    frame = outputs_table(summary)
    if len(frame) < summary.differing:
        st.caption(f"The first {len(frame):,} of them, in the order of computing.")
    table.draw(frame, _OUTPUTS, "", most=12)


_OUTPUTS = {
    **{name: Column(name) for name in ("step", "output", "view")}, "differs": Column("differs", "share"),
    "largest, ULP": Column("largest, ULP", "count"),
    **{name: Column(name, "%.3g") for name in ("largest / std", "error / std")},
}  # fmt: skip


def outputs_table(summary: TraceSummary) -> pd.DataFrame:
    """Outputs that differ, in the order of computing."""
    rows: list[dict[str, Any]] = []
    passes = {row.view for row in summary.tensors if row.name == "sam.out"}
    for row in summary.tensors:
        if row.differs and len(rows) < MOST_ROWS:
            view = "" if len(passes) < 2 or row.call else ("tiles", "global view")[min(row.view, 1)]
            rows.append(
                {
                    "step": "prefill" if row.call == 0 else str(row.call),
                    "output": row.name,
                    "view": view if row.name.startswith(("sam", "clip", "pixels", "projector")) else "",
                    "differs": row.differing_share,
                    "largest, ULP": row.max_ulp,
                    "largest / std": row.relative_to_std,
                    "error / std": row.error,
                }
            )
    frame = pd.DataFrame(rows)
    return frame.drop(columns="view") if len(frame) and not frame["view"].any() else frame
