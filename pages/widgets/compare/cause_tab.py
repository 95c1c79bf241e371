"""The tab Why: what both sides used, and the cause of their difference, found by reproducing B."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dsocr_core.base.specs.kinds import EagerSpec, FastSpec
from dsocr_core.base.words import plural
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from pages.widgets.compare import address
from pages.widgets.pair.tables import INPUT_MARKS, INPUTS, input_table
from pages.widgets.shared import figure, job_panel, resources, table
from pages.widgets.shared.job import Job
from pages.widgets.shared.job_panel import open_tab
from pages.widgets.shared.messages import plain
from pages.widgets.shared.runner import run_key
from pages.widgets.shared.strip import Strip, strip_html
from pages.widgets.shared.table import Column
from pages.widgets.streamlit_mends import rerun_fragment

if TYPE_CHECKING:
    from dsocr_core.reading.comparison import Comparison
    from dsocr_core.trace.why.run import PageAnswer
    from dsocr_core.trace.why.search import Finding

TAB = "Why"
MOST_RUNS = 500
HELP = (
    "A reads the page again as other engines are known to do: another n-gram rule, prompt, tiles or number "
    "type, first alone, then together, until it writes what B wrote."
)


def open_it() -> None:
    """Choose this tab, for the next rerun."""
    address.put("tab", TAB)


def why_not(settings: Settings, comparison: Comparison) -> str:
    """Say why there is no search; empty where one can be made."""
    a, b = comparison.a, comparison.b
    if a is None or b is None:
        return "Run both: without two outputs there is no difference."
    if a.text_raw == b.text_raw:
        return "A and B wrote the same text: there is nothing to explain."
    if not isinstance(settings.spec("a"), EagerSpec | FastSpec):
        return "A has to be one of our engines, eager or fast: it is A that tries the causes."
    return ""


def draw(settings: Settings, comparison: Comparison, command: str) -> None:
    """The tab on Compare. `command` does the same on the command line."""
    if reason := why_not(settings, comparison):
        st.caption(plain(reason))
        return
    b = comparison.b
    assert b is not None
    job: Job[PageAnswer] | None = st.session_state.get("cause job")
    mine = job if job is not None and job.about == about(settings, comparison.request, b) else None
    _controls(settings, comparison.request, b, job)
    if mine is None:
        return
    if mine.running:
        job_panel.draw(mine, "cause")
        return
    took = job_panel.ended(mine, "no cause was found so far")
    if mine.result is not None:
        show(mine.result, f"searched for {took}", command)


def _controls(settings: Settings, request: OcrRequest, b: OcrResult, job: Job[PageAnswer] | None) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="cause controls"):
        runs = st.number_input(
            "Settings to try", 1, MOST_RUNS, 60, key="cause runs", width=150, persist_state="session"
        )
        pressed = st.button(
            f"Try up to {plural(int(runs), 'setting')} on A", type="primary", key="find cause", help=HELP,
            width="content", disabled=job is not None and job.running,
        )  # fmt: skip
    if pressed:
        started = cause_job(settings, request, b, int(runs), search)
        st.session_state["cause job"] = started
        resources.runner().begin(started, settings, open_tab())
        rerun_fragment()


# --- the search, on a thread of its own -----------------------------------------------------------

BUDGET_S = 600.0
"""Seconds of one search."""

Find = Callable[[Settings, OcrRequest, OcrResult, int, "Job[PageAnswer]"], "PageAnswer"]
"""Finds the cause of what B wrote on a page within so many runs of A."""


def search(
    settings: Settings, request: OcrRequest, b: OcrResult, runs: int, job: Job[PageAnswer]
) -> PageAnswer:
    """`dsocr_core.trace.why` on one page, B being a result that is there. Raises DsocrError and Cancelled."""
    # Importing torch takes a second or two.
    from dsocr_core.page.documents import Page
    from dsocr_core.trace.why.reference import of_result
    from dsocr_core.trace.why.run import why
    from dsocr_core.trace.why.search import Budget

    def progress(words: str, run: int, most: int) -> None:
        job.say(f"Run {run} of at most {most}: {words}", run / most)

    answer = why(
        settings.for_comparison().of_side("a"),
        [Page(request.image, request.name, request.more if request.together else None)],
        lambda page: of_result(b),
        Budget(runs, BUDGET_S),
        progress,
        job.token,
        job.wait_for,
    )
    return answer.pages[0]


def cause_job(
    settings: Settings, request: OcrRequest, b: OcrResult, runs: int, find: Find
) -> Job[PageAnswer]:
    """A search for the cause of what B wrote."""
    return Job("cause", about(settings, request, b), lambda job: find(settings, request, b, runs, job))


def about(settings: Settings, request: OcrRequest, b: OcrResult) -> tuple[str, str]:
    """Name what a search is of: B may have read the page again since."""
    return run_key(settings, request), b.text_raw


# --- what was found -------------------------------------------------------------------------------


def show(answer: PageAnswer, when: str, command: str) -> None:
    """The conclusion, what both sides used, what was tried and what was not."""
    finding = answer.finding
    st.html(_strip(finding, when))
    if finding.also:
        st.caption(plain(f"This page cannot tell it from: {'; '.join(finding.also)}."))
    facts, trials, excluded = input_table(answer.facts), trials_table(finding), excluded_table(finding)
    runs = (
        f"{plural(finding.runs, 'run')} of A, the nearest to B first." if finding.runs else "No run was made."
    )
    figure.head(runs, reproduce=command, tried=trials, excluded=excluded, facts=facts)
    if len(trials):
        table.draw(trials, _TRIALS)
    if len(excluded):
        with st.expander(f"Excluded without a run ({len(excluded)})"):
            table.draw(excluded)
    with st.expander("What both sides used", expanded=finding.cause is None):
        st.caption(INPUT_MARKS)
        table.draw(facts, INPUTS)


def _strip(finding: Finding, when: str) -> str:
    explained = finding.cause is not None
    return strip_html(
        Strip(
            word="EXPLAINED" if explained else "CAUSE NOT FOUND",
            tone="identical" if explained else "none",
            icon="✓" if explained else "?",
            facts=(("", finding.sentence),),
            note=when,
        )
    )


_TRIALS = {
    "cause": Column("cause"), "first characters equal": Column("first characters equal"),
    "CER": Column("CER", "share"), "seconds": Column("time", "s"),
}  # fmt: skip


def trials_table(finding: Finding) -> pd.DataFrame:
    """List what was tried, the nearest to B first."""
    trials = sorted(finding.trials, key=lambda trial: trial.match.closeness, reverse=True)
    return pd.DataFrame(
        {
            "cause": [trial.words for trial in trials],
            "first characters equal": [
                "all" if trial.match.exact else f"{trial.match.agreed:,} of {trial.match.of:,}"
                for trial in trials
            ],
            "CER": [trial.match.error_rate for trial in trials],
            "seconds": [trial.seconds for trial in trials],
        }
    )


def excluded_table(finding: Finding) -> pd.DataFrame:
    """Hypotheses that need no run, and why."""
    return pd.DataFrame(
        [(each.hypothesis.words, each.why) for each in finding.exclusions], columns=["cause", "why not"]
    )
