"""Compare: one page as A and B, side by side, and whether they agree."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.reading.records import SIDES, Side
from pages.widgets.compare import address, details, document, example, progress, sidebar, verdict
from pages.widgets.pair import sheets, viewer
from pages.widgets.pair.shown import Shown, result_words, rows_of
from pages.widgets.shared import heading, resources
from pages.widgets.shared.job_panel import open_tab
from pages.widgets.shared.labels import side_label, side_labels, side_letter
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.run_job import ReadJob
from pages.widgets.shared.runner import PageResults, run_key
from pages.widgets.shared.strip import Strip, reasons_html, strip_html
from pages.widgets.shared.url_state import refused


def page() -> None:
    heading.draw("compare")
    address.read(example.first)
    if refused():
        return
    example.leave_with_its_page()
    job: ReadJob | None = st.session_state.get("job")
    running = _running()
    with st.sidebar:
        choice, pressed = sidebar.draw(running)
    if choice.page is None:
        _nothing_yet(choice)
        address.write()
        return
    if choice.refusal:
        _refused_settings(choice.refusal)
        address.write()
        return
    try:
        picture = resources.page_picture(choice.page.path, choice.settings.max_pixels)
    except DsocrError as error:
        show_error(error)
        return
    request = choice.request
    assert request is not None
    if pressed and _start(choice, choice.sides):
        st.rerun()
    # Read once: a run that ends while the page is drawn is drawn by the next rerun.
    running = job is not None and job.running
    document.draw(choice, _running())
    top = st.container(gap="small")
    with top, st.spinner("Reading recorded results", show_time=True):
        results = (example.results() if address.value("example") else None) or (
            resources.runner().page_results(choice.settings, request, job)
        )
    with top:
        if running and job is not None:
            progress.draw(job, side_labels(choice.settings))
        if not running or not _about(job, choice):
            _strip(choice, results)
        if job is not None and results.cancelled and _about(job, choice):
            progress.show_partial(job, side_labels(choice.settings))
    _results(choice, picture, results.comparison, job)


def _running() -> bool:
    """Tell whether this tab reads something: a page, or all pages of a document."""
    return any((job := st.session_state.get(name)) and job.running for name in ("job", document.JOB))


# --- runs -----------------------------------------------------------------------------------------


def _start(choice: sidebar.Choice, sides: tuple[Side, ...]) -> bool:
    """Begin a run of the chosen page; False, with the reason on the page, when that cannot be."""
    request = choice.request
    assert request is not None
    try:
        st.session_state["job"] = resources.runner().start(choice.settings, request, sides, open_tab())
    except DsocrError as error:
        show_error(error)
        return False
    example.forget()
    return True


def _about(job: ReadJob | None, choice: sidebar.Choice) -> bool:
    """Tell whether the job is about the chosen page under the chosen settings."""
    return (
        job is not None
        and choice.request is not None
        and job.about == run_key(choice.settings, choice.request)
    )


# --- what is drawn --------------------------------------------------------------------------------


def _nothing_yet(choice: sidebar.Choice) -> None:
    if not choice.problem:
        st.markdown("Upload an image or a PDF, or type a path, on the left; or start with a sample.")
    st.button("Open a sample", type="primary", on_click=address.put, args=("source", "Sample"))


def _refused_settings(why: str) -> None:
    """In place of a verdict, why there is none under these settings, with the way out."""
    st.html(strip_html(Strip("NOT READ", "none", (("", why),), icon="–")))
    if st.session_state["checkpoint"].strip() != (usual := resources.base_settings().checkpoint):
        words = f"Use {plain(usual)}"
        st.button(words, type="primary", key="usual checkpoint", on_click=sidebar.use_usual_checkpoint)


def _strip(choice: sidebar.Choice, results: PageResults) -> None:
    for problem in results.problems:
        show_error(problem)
    strip = verdict.strip_of(results, side_labels(choice.settings))
    with st.container(horizontal=True, vertical_alignment="center", key="strip"):
        st.html(strip_html(strip), width="stretch")
        if results.comparison is not None:
            details.commands(choice.settings, results.comparison)
        again = bool(results.recorded) and st.button(
            "Run again", key="run again", width="content", disabled=not choice.sides or _running()
        )
    if again and _start(choice, choice.sides):
        st.rerun()
    if strip.reasons:
        st.html(reasons_html(strip.reasons))
    example.draw()


def _results(
    choice: sidebar.Choice, picture: resources.Picture, comparison: Comparison | None, job: ReadJob | None
) -> None:
    """The viewer and the tabs: a fragment, so that a selection does not run the whole page."""
    st.fragment(_draw_results)(choice, picture, comparison, job)


def _draw_results(
    choice: sidebar.Choice, picture: resources.Picture, comparison: Comparison | None, job: ReadJob | None
) -> None:
    assert choice.page is not None
    assert choice.request is not None
    labels = side_labels(choice.settings)
    # A page that was not read has no results, and its viewer no boxes.
    pair = comparison or Comparison(choice.request)
    count = sheets.count(pair)
    turns = address.turns()
    if address.take_turns(choice.pages.keys, choice.position, count):
        st.rerun()
    sheet = address.sheet(count)
    rows = rows_of(comparison, sheet)
    shown = Shown(pair, labels, rows, address.selected(len(rows)), address.select, sheet=sheet)
    if sheet:
        picture = resources.page_picture(pair.request.images[sheet], choice.settings.max_pixels)
    size = (picture.width, picture.height)
    leafing = (sheet, count) if count > 1 else (choice.position, len(choice.pages.keys))
    report = pair.report
    said = f"{VERDICT_WORDS[report.verdict]}. {'; '.join(report.reasons)}" if report else "no verdict"
    sides = viewer.draw(
        shown,
        viewer.image_values(f"{choice.page.key}{sheet or ''}", picture, size, "viewer"),
        _pane_words(choice, comparison, job),
        (address.value("mode"), partial(address.put, "mode")),
        f"{choice.page.name}: {said}",
        position={"index": leafing[0], "count": leafing[1]},
        turns=turns,
    )
    if sides and not _running() and _start(choice, sides):
        st.rerun()
    if comparison is not None and comparison.results:
        details.draw(shown, choice.settings)
    address.write()


def _pane_words(
    choice: sidebar.Choice, comparison: Comparison | None, job: ReadJob | None
) -> dict[Side, dict[str, str]]:
    """For each side the line over its pane, and a notice with a button where there is nothing to show."""
    results = comparison.results if comparison else {}
    errors = comparison.errors if comparison else {}
    running = job.sides if job is not None and job.running and _about(job, choice) else ()
    if not results and not errors and not running:
        nothing = {"summary": "not run", "message": "", "action": "", "action_words": ""}
        words = {"message": "Neither side has read this page yet."}
        run = {} if _running() else {"action": "both", "action_words": "Run both"}
        return {"a": nothing | words | run, "b": nothing}
    shown: dict[Side, dict[str, str]] = {}
    for side in SIDES:
        run = {"action": side, "action_words": f"Run {side_letter(side)}"}
        if (result := results.get(side)) is not None:
            before = "earlier run: " if running else ""
            shown[side] = {"summary": f"{before}{result_words(result)}", "message": "", "action": ""}
        elif side in running:
            shown[side] = {"summary": "running", "message": "", "action": ""}
        elif side in errors:
            shown[side] = {"summary": "failed", "message": f"{side_letter(side)} failed; run it again."} | run
        else:
            label = side_label(side, choice.settings.backend(side))
            shown[side] = {"summary": "not run", "message": f"{label}, has not read this page."} | run
    return shown


page()
resources.warm_up()
