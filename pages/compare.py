"""Compare: one page down both roads, side by side, and whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.records import OcrResult, Road
from pages.widgets import details, progress, reading, resources, sidebar, verdict
from pages.widgets.formats import duration, plural
from pages.widgets.session import BOTH, Job, merged, run_key
from pages.widgets.style import apply_style
from pages.widgets.viewer import show_viewer
from pages.widgets.viewer.payload import MODES, Pairing, lone_pairings, pair_values, pairings

if TYPE_CHECKING:
    from dsocr_core.pipeline import Comparison


def page() -> None:
    apply_style()
    job: Job | None = st.session_state.get("job")
    running = job is not None and job.running
    with st.sidebar:
        choice, asked = sidebar.draw(running)
    if choice.page is None:
        _nothing_yet(choice)
        return
    try:
        picture = resources.page_picture(choice.page.path)
    except DsocrError as error:
        st.error(str(error), icon=":material/error:")
        return
    top = st.container(gap="small")
    if asked:
        job = _start(choice, choice.roads)
        running = job is not None
    comparison, problems = _result(choice, job)
    with top:
        if running and job is not None:
            progress.draw(job)
        else:
            _strip(choice, comparison, problems, job)
    _results(choice, picture, comparison, job)


# --- runs -----------------------------------------------------------------------------------------


def _start(choice: sidebar.Choice, roads: tuple[Road, ...]) -> Job | None:
    request = choice.request
    assert request is not None
    try:
        job = resources.runner().start(choice.settings, request, roads)
    except DsocrError as error:
        st.error(str(error), icon=":material/error:")
        return None
    st.session_state["job"] = job
    return job


def _result(choice: sidebar.Choice, job: Job | None) -> tuple[Comparison | None, list[str]]:
    """What is known about the chosen page: this tab's run, completed by what was recorded before."""
    request = choice.request
    assert request is not None
    mine = job is not None and job.key == run_key(choice.settings, request)
    fresh = job.comparison if job is not None and mine else None
    problems: list[str] = []
    try:
        with st.spinner("Looking for recorded results", show_time=True):
            recorded = resources.runner().recorded(choice.settings, request)
    except DsocrError as error:
        recorded, problems = None, [str(error)]
    if job is not None and mine and not job.running:
        view = job.view()
        problems += [view.error] if view.error else []
        problems += [f"{road}: {text}" for road, text in (fresh.errors if fresh else {}).items()]
    if fresh is None:
        return recorded, problems
    if recorded is None:
        return fresh, problems
    return merged(recorded, fresh), problems


# --- what is drawn --------------------------------------------------------------------------------


def _nothing_yet(choice: sidebar.Choice) -> None:
    if not choice.problem:
        st.info("Choose a page on the left: a sample, an upload, or a path.", icon=":material/arrow_back:")


def _strip(
    choice: sidebar.Choice, comparison: Comparison | None, problems: list[str], job: Job | None
) -> None:
    for problem in problems:
        st.error(problem, icon=":material/error:")
    left, right = st.columns([6, 1], vertical_alignment="center")
    strip = verdict.strip_of(comparison)
    left.html(verdict.strip_html(strip))
    if comparison is not None and comparison.recorded_at:
        if right.button("Run again", key="run again", width="stretch", disabled=not choice.roads):
            _start(choice, choice.roads)
            st.rerun()
    elif job is not None and job.view().state == "cancelled":
        right.caption("cancelled")
    for reason in strip.reasons:
        st.caption(reason)


def _results(
    choice: sidebar.Choice, picture: resources.Picture, comparison: Comparison | None, job: Job | None
) -> None:
    """The viewer and the tabs: a fragment, so that a selection does not run the whole page."""
    st.fragment(_draw_results)(choice, picture, comparison, job)


def _draw_results(
    choice: sidebar.Choice, picture: resources.Picture, comparison: Comparison | None, job: Job | None
) -> None:
    assert choice.page is not None
    rows = _rows(comparison)
    selected = _selected(len(rows))
    step, road = show_viewer(
        "viewer",
        {
            "image": {
                "id": f"{choice.page.path}:{picture.width}x{picture.height}",
                "url": resources.picture_url(picture, "viewer"),
                "width": picture.width,
                "height": picture.height,
            },
            "position": {"index": choice.position, "count": len(choice.pages)},
            "roads": {road: _road_words(road, comparison, job) for road in BOTH},
            "pairs": pair_values(rows),
            "colours": _colours(rows),
            "mode": _mode(),
            "selected": selected,
        },
        on_selected=lambda: _take_selection("viewer"),
        on_mode=_take_mode,
    )
    if step and choice.pages:
        sidebar.show_page(choice.pages[(choice.position + step) % len(choice.pages)].key)
        st.rerun()
    if road is not None and (job is None or not job.running):
        _start(choice, (road,))
        st.rerun()
    if comparison is not None and (comparison.ours or comparison.vendor):
        details.draw(details.Shown(comparison, rows, choice.settings, selected, _take_selection))


def _rows(comparison: Comparison | None) -> list[Pairing]:
    if comparison is None:
        return []
    if comparison.report is not None:
        return pairings(comparison.report.pairs)
    result = comparison.ours or comparison.vendor
    return lone_pairings(reading.boxes_of(result), result.road) if result else []


def _colours(rows: list[Pairing]) -> dict[str, str]:
    labels = {box.label for row in rows for box in (row.ours, row.vendor) if box}
    return {label: reading.label_colour(label) for label in labels}


def _road_words(road: Road, comparison: Comparison | None, job: Job | None) -> dict[str, str]:
    """The line over a pane, and the notice in it when there is nothing to show."""
    result: OcrResult | None = getattr(comparison, road) if comparison else None
    if result is not None:
        boxes = plural(len(reading.boxes_of(result)), "box", "boxes")
        end = "" if result.finish_reason == "eos" else ", stopped at the token limit"
        return {
            "summary": f"{boxes}, {plural(len(result.token_ids), 'token')}{end}, {duration(result.total_ms)}",
            "message": "",
            "action": "",
        }
    if job is not None and job.running and road in job.roads:
        return {"summary": "running", "message": "", "action": ""}
    if comparison is not None and road in comparison.errors:
        return {"summary": "failed", "message": f"{road} failed; the reason is above.", "action": f"Run {road}"}
    return {"summary": "not run", "message": f"{road} has not read this page.", "action": f"Run {road}"}


# --- what the address keeps -----------------------------------------------------------------------


def _mode() -> str:
    mode = st.query_params.get("mode", MODES[0])
    return mode if mode in MODES else MODES[0]


def _take_mode() -> None:
    mode: Any = st.session_state["viewer"].get("mode")
    if mode in MODES:
        st.query_params["mode"] = mode


def _selected(count: int) -> int | None:
    text = st.query_params.get("box", "")
    return int(text) - 1 if text.isdecimal() and 0 < int(text) <= count else None


def _take_selection(name: str) -> None:
    state: Any = st.session_state[name]
    if name == "box table":
        rows = state["selection"]["rows"]
        index = rows[0] if rows else None
    else:
        index = state.get("selected")
    if isinstance(index, int):
        st.query_params["box"] = str(index + 1)
    else:
        st.query_params.pop("box", None)


page()
