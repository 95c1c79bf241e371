"""The sidebar of the Review page: which runs are reviewed, the filters, the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.reading.parity_records import KINDS, VERDICT_WORDS
from dsocr_core.review.keys import parse_key, review_key
from dsocr_core.review.queue import UNREVIEWED, counts, decision, select
from dsocr_core.runs.history import EXAMPLE, History
from dsocr_core.runs.labels import CONDITION, condition, has_value, run_labels, short
from pages.widgets.components.gallery import show_gallery
from pages.widgets.review import address
from pages.widgets.review.address import MANY, key, value
from pages.widgets.review.position import Position, compared, reviewed_words
from pages.widgets.shared import navigation, new_runs
from pages.widgets.shared.messages import plain
from pages.widgets.shared.strip import verdict_words

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview

_MOST_RUNS = 500
"""A select box is offered the newest so many."""
_FILTERS = {
    "parity": "Parity",
    "verdicts": "Review",
    "kinds": "Difference",
}
_MOST_PILLS = 14
"""More values than that are in a list to open."""
_ITSELF = ""
"""Stands for the other backend of the same run."""


# --- which runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """The runs to choose from, newest first."""

    labels: dict[str, str]
    """Run id -> what it is called."""
    usual: str
    """The review to open when none is asked for: of the newest run with both backends; "" when there is none.

    Where there are examples only, one with differences.
    """


def runs_of(history: History) -> Runs:
    """The runs that have pages; read again after a refresh only."""
    shown = new_runs.shown(history)
    found: tuple[set[str], Runs] | None = st.session_state.get("review runs")
    if found is None or found[0] is not shown:
        every = history.runs()
        every = every[every["run_id"].isin(shown) & (every["pages"].fillna(0) > 0)]
        facts = every[["run_id", "backends", "compared", "tags", "checkpoint", *CONDITION]]
        runs = Runs(run_labels(every.head(_MOST_RUNS)), _usual(facts.to_dict("records")))
        found = st.session_state["review runs"] = (shown, runs)
    return found[1]


def _usual(runs: list[dict[Any, Any]]) -> str:
    """The key of the review to open, of runs that are newest first."""
    both = [run for run in runs if _has_both(run)]
    own = [run for run in both if EXAMPLE not in run["tags"]]
    if not own:
        for b in [run for run in runs if EXAMPLE in run["tags"] and not _has_both(run)]:
            # Of one checkpoint under one condition, so that the cause of the differences is another one.
            for a in both:
                alike = all(a[name] == b[name] for name in ("checkpoint", "preset"))
                if alike and condition(a) == condition(b):
                    return review_key(str(a["run_id"]), str(b["run_id"]))
    return str((own or both)[0]["run_id"]) if both else ""


def _has_both(run: dict[Any, Any]) -> bool:
    """Tell whether a run has what a review of it alone needs."""
    backends = run["backends"] if has_value(run["backends"]) else ()
    return len({*backends}) > 1 and bool(has_value(run["compared"]) and run["compared"])


def choose_runs(history: History, runs: Runs) -> None:
    """Two select boxes that make the review's key."""
    run_a, run_b = _chosen()
    labels = dict(runs.labels)
    for run_id in (run_a, run_b):
        if run_id:
            labels.setdefault(run_id, short(run_id))
    words = {_ITSELF: "the other backend of the same run"}
    st.session_state["review a"], st.session_state["review b"] = run_a or None, run_b
    st.selectbox(
        "A, before", list(labels), key="review a", format_func=lambda run: labels.get(run, run),
        placeholder="a recorded run", on_change=_open,
    )  # fmt: skip
    st.selectbox(
        "B, after", [_ITSELF, *labels], key="review b", on_change=_open,
        format_func=lambda run: words.get(run) or labels.get(run, run),
    )  # fmt: skip
    new_runs.refresh_button(history)


def _chosen() -> tuple[str, str]:
    try:
        run_a, run_b, _, _ = parse_key(value("review"))
    except DsocrError:
        return "", ""
    return run_a, run_b if run_b and run_b != run_a else _ITSELF


def _open() -> None:
    run_a, run_b = st.session_state["review a"], st.session_state["review b"]
    if run_a:
        address.open_review(review_key(run_a, run_b or None))


# --- filters and queue ----------------------------------------------------------------------------


def draw(here: Position) -> None:
    every = compared(select(here.review.pages, replace(address.filters(), failing=False), here.given))
    failing = len(compared(select(here.review.pages, replace(address.filters(), failing=True), here.given)))
    st.caption(reviewed_words(here))
    words = {False: f"All {len(every):,}", True: f"Not passing {failing:,}"}
    st.segmented_control(
        "Which pages", [False, True], key=key("failing"), format_func=words.__getitem__, required=True,
        label_visibility="collapsed", width="stretch",
    )  # fmt: skip
    st.segmented_control(
        "View", ["Page", "Grid"], key=key("view"), required=True, label_visibility="collapsed",
        width="stretch",
    )  # fmt: skip
    used_filters = address.used_filters()
    used = used_filters - value("failing")
    # Drawn when it is open: every page shown would bring it to the browser again.
    more = st.expander(f"Filters ({used})" if used else "Filters", key="review filters", on_change="rerun")
    if more.open:
        with more:
            draw_filters(here, MANY if value("view") == "Page" else ())
    if used_filters:
        st.button("Clear the filters", on_click=address.clear_filters, width="stretch", key="review clear")
    if value("view") == "Page" and (here.queue or used_filters):
        show_gallery(
            "review queue", "Pages, worst first", "queue", len(here.queue), here.position,
            lambda shown: [line(here, here.queue[number]) for number in shown], address.show_page,
        )  # fmt: skip
    _in_one_run(here)
    st.toggle("Next page after a verdict", key=key("onward"))


def _in_one_run(here: Position) -> None:
    """The way to the pages that only one run has."""
    count = sum(page.in_one_run for page in here.review.pages)
    if count and "absent" not in value("kinds"):
        st.button(
            f"List the {plural(count, 'page')} of one run", key="review absent", type="tertiary",
            icon=":material/rule:", on_click=address.put, args=("kinds", ["absent"]),
            help="Nothing to compare on them.",
        )  # fmt: skip


def draw_filters(here: Position, names: Sequence[str]) -> None:
    """Filters whose values are clicked, each with the number of pages that it would leave."""
    found = counts(here.review.pages, address.filters(), here.given)
    for name in names:
        _filter(name, found[name])


def _filter(name: str, found: dict[str, int]) -> None:
    options = [*found, *(chosen for chosen in value(name) if chosen not in found)]

    def words(option: str) -> str:
        return f"{plain(_option(name, option))} · {found.get(option, 0):,}"

    if len(options) > _MOST_PILLS:
        st.multiselect(_FILTERS[name], options, key=key(name), placeholder="any", format_func=words)
    elif options:
        st.pills(_FILTERS[name], options, key=key(name), selection_mode="multi", format_func=words)


def _option(name: str, option: str) -> str:
    words: dict[str, dict[Any, str]] = {
        "parity": {**VERDICT_WORDS}, "kinds": {**KINDS},
    }  # fmt: skip
    return words.get(name, {}).get(option, short(option, 40))


def line(here: Position, page: PageReview) -> dict[str, Any]:
    """The page as a gallery shows it."""
    reviewed = decision(page.name, here.given)
    words = verdict_words(page.verdict)
    reviews = [
        f"{reviewer}: {row.verdict}" for reviewer, row in sorted(here.given.get(page.name, {}).items())
    ]
    return {
        "key": page.name,
        "name": page.name,
        "words": kind_words(page),
        "tone": words.tone,
        "sign": words.icon,
        "verdict": "" if reviewed == UNREVIEWED else reviewed,
        "title": "\n".join([page.name[:200], words.words, f"score {page.score:,.0f}", *reviews]),
    }


def kind_words(page: PageReview) -> str:
    """Say what differs on a page, gravest first."""
    if page.kinds:
        return ", ".join(KINDS[kind] for kind in page.kinds)
    return "no difference" if page.verdict == "identical" else "; ".join(page.reasons)


def nothing(runs: Runs) -> None:
    """Show what to do when there is no run with both backends."""
    if runs.labels:
        st.markdown(
            f"No run with both backends yet. Choose two of the {plural(len(runs.labels), 'run')} on the left "
            "to review the later against the earlier, or compare pages to record both backends."
        )
    else:
        st.markdown(
            "Nothing to review yet. Compare pages to record both backends, or import runs made elsewhere."
        )
    with st.container(horizontal=True):
        if st.button("Go to Compare", type="primary", key="review to compare"):
            navigation.to_compare()
        if st.button("Import runs", key="review to import"):
            navigation.to_import()
    st.caption(plain("On the command line: python -m dsocr_core compare FOLDER --save"))
