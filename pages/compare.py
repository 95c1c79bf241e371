"""Compare: one page through both backends, side by side, and whether they agree."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.records import BackendName, OcrResult
from pages.widgets.compare import address, details, progress, sidebar, verdict
from pages.widgets.components.viewer import show_viewer
from pages.widgets.components.viewer.payload import MODES, Pairing, lone_pairings, pair_values, pairings
from pages.widgets.shared import reading, resources
from pages.widgets.shared.formats import duration, plural
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.run_job import BOTH, Job
from pages.widgets.shared.runner import Known, run_key
from pages.widgets.shared.style import apply_style

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison


def page() -> None:
    apply_style()
    address.read()
    job: Job | None = st.session_state.get("job")
    running = job is not None and job.running
    with st.sidebar:
        choice, asked = sidebar.draw(running)
    if choice.page is None:
        _nothing_yet(choice)
        address.write()
        return
    try:
        picture = resources.page_picture(choice.page.path, choice.settings.max_pixels)
    except DsocrError as error:
        show_error(error)
        return
    request = choice.request
    assert request is not None
    if asked and _start(choice, choice.backends):
        st.rerun()
    # Asked once: a run that ends while the page is drawn is drawn by the next rerun.
    running = job is not None and job.running
    top = st.container(gap="small")
    with top, st.spinner("Looking for recorded results", show_time=True):
        known = resources.runner().known(choice.settings, request, job)
    with top:
        if running and job is not None:
            progress.draw(job)
        if not running or not _about(job, choice):
            _strip(choice, known)
    _results(choice, picture, known.comparison, job)


# --- runs -----------------------------------------------------------------------------------------


def _start(choice: sidebar.Choice, backends: tuple[BackendName, ...]) -> bool:
    """Begin a run of the chosen page; False, with the reason on the page, when that cannot be."""
    request = choice.request
    assert request is not None
    try:
        st.session_state["job"] = resources.runner().start(choice.settings, request, backends)
    except DsocrError as error:
        show_error(error)
        return False
    return True


def _about(job: Job | None, choice: sidebar.Choice) -> bool:
    """Whether the job is about the chosen page under the chosen settings."""
    return (
        job is not None and choice.request is not None and job.key == run_key(choice.settings, choice.request)
    )


# --- what is drawn --------------------------------------------------------------------------------


def _nothing_yet(choice: sidebar.Choice) -> None:
    if not choice.problem:
        st.markdown("Upload an image or a PDF, or type a path, on the left; or start with a sample.")
    st.button("Look at a sample", type="primary", on_click=address.show_samples)


def _strip(choice: sidebar.Choice, known: Known) -> None:
    for problem in known.problems:
        show_error(problem)
    strip = verdict.strip_of(known)
    if known.recorded:
        with st.container(horizontal=True, vertical_alignment="center", key="strip"):
            st.html(verdict.strip_html(strip), width="stretch")
            again = st.button("Run again", key="run again", width="content", disabled=not choice.backends)
        if again and _start(choice, choice.backends):
            st.rerun()
    else:
        st.html(verdict.strip_html(strip))
    if strip.reasons:
        st.html(f"<div class='dsocr-reasons'>{escape('; '.join(strip.reasons))}</div>")


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
    selected = address.selected(len(rows))
    step, backends = show_viewer(
        "viewer",
        {
            "image": {
                "id": f"{choice.page.key}:{picture.width}x{picture.height}",
                "url": resources.picture_url(picture, "viewer"),
                "width": picture.width,
                "height": picture.height,
            },
            "position": {"index": choice.position, "count": len(choice.pages.keys)},
            "backends": _backend_words(choice, comparison, job),
            "pairs": pair_values(rows),
            "colours": _colours(rows),
            "mode": address.mode(),
            "selected": selected,
        },
        on_selected=lambda: _take_selection("viewer"),
        on_mode=_take_mode,
    )
    if step:
        keys = choice.pages.keys
        address.show_page(keys[(choice.position + step) % len(keys)])
        st.rerun()
    if backends and (job is None or not job.running) and _start(choice, backends):
        st.rerun()
    if comparison is not None and (comparison.a or comparison.b):
        details.draw(details.Shown(comparison, rows, choice.settings, selected, _take_selection))
    address.write()


def _rows(comparison: Comparison | None) -> list[Pairing]:
    if comparison is None:
        return []
    if comparison.report is not None:
        return pairings(comparison.report.pairs)
    result = comparison.a or comparison.b
    return lone_pairings(reading.boxes_of(result), result.backend) if result else []


def _colours(rows: list[Pairing]) -> dict[str, str]:
    labels = {box.label for row in rows for box in (row.a, row.b) if box}
    return {label: reading.label_colour(label) for label in labels}


def _backend_words(
    choice: sidebar.Choice, comparison: Comparison | None, job: Job | None
) -> dict[str, dict[str, str]]:
    """For each backend the line over its pane, and a notice with a button where there is nothing to show."""
    running = job is not None and job.running and _about(job, choice)
    words: dict[str, dict[str, str]] = {}
    for backend in BOTH:
        result: OcrResult | None = getattr(comparison, backend) if comparison else None
        summary, message, action = "not run", f"{backend} has not read this page.", str(backend)
        if result is not None:
            summary, message, action = _result_words(result), "", ""
            if running:
                summary = f"earlier run: {summary}"
        elif running and job is not None and backend in job.backends:
            summary, message, action = "running", "", ""
        elif comparison is not None and backend in comparison.errors:
            summary, message = "failed", f"{backend} failed; run it again."
        words[backend] = {"summary": summary, "message": message, "action": action}
    if all(word["summary"] == "not run" for word in words.values()):
        words["a"] |= {"message": "Neither backend has read this page yet.", "action": "both"}
        words["b"] |= {"message": "", "action": ""}
    return words


def _result_words(result: OcrResult) -> str:
    boxes = plural(len(reading.boxes_of(result)), "box", "boxes")
    end = "" if result.finish_reason == "eos" else ", stopped at the token limit"
    return f"{boxes}, {plural(len(result.token_ids), 'token')}{end}, {duration(result.total_ms)}"


# --- what components report ----------------------------------------------------------------------


def _take_mode() -> None:
    mode: Any = st.session_state["viewer"].get("mode")
    if mode in MODES:
        st.session_state["mode"] = mode


def _take_selection(name: str) -> None:
    """A click in the viewer, in the text or in the table of boxes."""
    state: Any = st.session_state[name]
    if name == "box table":
        rows = state["selection"]["rows"]
        index = rows[0] if rows else None
    else:
        index = state.get("selected")
    address.select(index if isinstance(index, int) else None)


page()
