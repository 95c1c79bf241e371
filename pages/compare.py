"""Compare: one page as A and B, what differs, who is right, and why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.reading.records import SIDES, Side
from pages.widgets.compare import address, backends, document, example, files, progress, sidebar
from pages.widgets.compare.address import STATE, put, value
from pages.widgets.pair import tabs, viewer
from pages.widgets.pair.answer import answer, facts
from pages.widgets.pair.shown import PairView, result_words, rows_of, truth_of
from pages.widgets.shared import figure, resources
from pages.widgets.shared.job import tab_watch
from pages.widgets.shared.labels import answer_html, side_label, side_labels, verdict_html
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.runner import PageResults, ReadJob, run_key

if TYPE_CHECKING:
    from pages.widgets.compare.sidebar import Choice


def page() -> None:
    address.read(example.first)
    figure.heading(STATE)
    example.leave_with_its_page()
    job: ReadJob | None = st.session_state.get("job")
    with st.sidebar:
        choice, pressed = sidebar.draw(_running())
    if choice.page is None or choice.refusal:
        _nothing(choice)
        address.write()
        return
    try:
        picture = resources.page_picture(choice.page.path, choice.settings.max_pixels)
    except DsocrError as error:
        show_error(error)
        return
    if pressed:
        _start(choice, choice.sides)
    # Read once: a run that ends while the page is drawn is drawn by the next rerun.
    running = job if job is not None and job.running else None
    with st.container():  # whether it holds a run or not, what follows keeps its place on the page
        document.draw(choice, _running())
        if running is not None:
            progress.draw(running, side_labels(choice.settings))
    with st.spinner("Reading recorded results", show_time=True):
        results = (example.results() if value("example") else None) or (
            resources.runner().page_results(choice.settings, choice.request, job)
        )
    st.fragment(_draw_results)(choice, picture, results, job, value("example"))


def _running() -> bool:
    """Tell whether this tab reads something: a page, or all pages of a document."""
    return any((job := st.session_state.get(name)) and job.running for name in ("job", document.JOB))


def _start(choice: Choice, sides: tuple[Side, ...]) -> None:
    """Begin a run of the chosen page. The page shows why it cannot."""
    try:
        runner = resources.runner()
        st.session_state["job"] = runner.read(choice.settings, choice.request, sides, tab_watch())
    except DsocrError as error:
        show_error(error)
        return
    put("example", False)
    st.rerun()


def _nothing(choice: Choice) -> None:
    """In place of an answer, why there is none, with the way out."""
    if choice.page is None:
        st.markdown(
            "See the error on the left." if choice.problem else "Upload an image or a PDF, or type a path."
        )
        st.button("Open a sample", type="primary", on_click=address.open_sample)
        return
    st.html(answer_html("NOT READ", "none", choice.refusal))
    if st.session_state["checkpoint"].strip() != (usual := resources.base_settings().checkpoint):
        words = f"Use {plain(usual)}"
        st.button(words, type="primary", key="usual checkpoint", on_click=sidebar.use_usual_checkpoint)


# --- what is drawn --------------------------------------------------------------------------------


def _draw_results(
    choice: Choice, picture: resources.Picture, results: PageResults, job: ReadJob | None, of_example: bool
) -> None:
    """The answer, the viewer and the tabs: a fragment, so that a selection does not run the whole page."""
    if of_example and not value("example"):
        st.rerun()  # its button stands in this fragment, the settings do not
    assert choice.page is not None
    if job is not None and job.about != run_key(choice.settings, choice.request):
        job = None  # a run of another page, or under other settings
    # A page that was not read has no results, and its viewer no boxes.
    pair = results.comparison or Comparison(choice.request)
    count = len(pair.request.images)
    if address.take_turns(choice.pages.keys, choice.position, count):
        st.rerun()
    sheet, names = STATE.sheet(count), side_labels(choice.settings)
    rows = rows_of(results.comparison, sheet)
    shown = PairView(
        pair, names, rows, STATE.selected(len(rows)), STATE.select, sheet=sheet,
        truth=truth_of(choice.page.path), known_causes=(example.CAUSE,) if value("example") else (),
    )  # fmt: skip
    with st.container(key="answer"):  # of one element or several: the viewer keeps its place
        _answer(choice, results, shown, job)
    if shown.sheet:
        picture = resources.page_picture(pair.request.images[shown.sheet], choice.settings.max_pixels)
    at, pages = (shown.sheet, count) if count > 1 else (choice.position, len(choice.pages.keys))
    sides = viewer.draw(
        shown,
        viewer.image_values(f"{choice.page.key}{shown.sheet or ''}", picture, "viewer"),
        _pane_words(choice, pair, job),
        STATE,
        f"{choice.page.name}: {VERDICT_WORDS[shown.report.verdict] if shown.report else 'no verdict'}. "
        f"{answer(shown)}",
        position={"index": at, "count": pages, "first": at == 0, "last": at + 1 >= pages},
        turns={"taken": value("taken"), "subject": value("page")},
    )
    if sides and not _running():
        _start(choice, sides)
    if pair.results:
        tabs.draw(shown, STATE, backends.to_find_out(choice.settings, pair), partial(files.draw, shown))
    address.write()


def _answer(choice: Choice, results: PageResults, shown: PairView, job: ReadJob | None) -> None:
    """The verdict with its sentence, the figures under it, and what one can do."""
    for problem in results.problems:
        show_error(problem)
    if job is not None and job.running and shown.report is None:
        return  # the panel says it
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(_verdict(results, shown), width="stretch")
        example.draw()
        if shown.results:
            with st.popover("Command", width="content", key="commands"):
                st.caption("Read this page again:")
                command = backends.read_again(shown.comparison.request, choice.settings)
                st.code(command, language=None, wrap_lines=True)
        if results.recorded and st.button(
            "Run again", key="run again", width="content", disabled=not choice.sides or _running()
        ):
            _start(choice, choice.sides)
    if job is not None and results.cancelled:
        progress.show_partial(job, side_labels(choice.settings))


def _verdict(results: PageResults, shown: PairView) -> str:
    note = f"recorded {moment(results.recorded_at)}" if results.recorded_at else ""
    if results.cancelled:
        note = f"your run was cancelled{f'; {note}' if note else ''}"
    if results.comparison is None:
        if _running():
            return answer_html("READING", "none", "The result is shown when the run is over.")
        word = "CANCELLED" if results.cancelled else "NOT RUN"
        return answer_html(word, "none", "No result of this page under these settings yet.")
    if shown.report is None:
        missing = [side for side in SIDES if side not in shown.results]
        failed = [side for side in missing if side in shown.comparison.errors]
        words = [f"{side.upper()} {'failed' if side in failed else 'has not run'}." for side in missing]
        return answer_html("NOT COMPARED", "none", " ".join(words), facts(shown), note)
    return verdict_html(shown.report.verdict, answer(shown), facts(shown), note)


def _pane_words(choice: Choice, pair: Comparison, job: ReadJob | None) -> dict[Side, dict[str, str]]:
    """For each side the line over its pane, and a notice with a button where there is nothing to show."""
    results, errors = pair.results, pair.errors
    running = {side: watch.state for side, watch in job.watches.items()} if job and job.running else {}
    if not results and not errors and not running:
        run = {} if _running() else {"action": "both", "action_words": "Run both"}
        state, words = ("reading", "") if _running() else ("not run", "Neither side has read this page yet.")
        return {"a": viewer.pane_words(state, words) | run, "b": viewer.pane_words(state)}
    shown: dict[Side, dict[str, str]] = {}
    for side in SIDES:
        run = {"action": side, "action_words": f"Run {side.upper()}"}
        if (result := results.get(side)) is not None:
            shown[side] = viewer.pane_words("earlier run: " * (side in running) + result_words(result))
        elif side in running:
            shown[side] = viewer.pane_words(running[side])
        elif side in errors:
            shown[side] = viewer.pane_words("failed", f"{side.upper()} failed; run it again.") | run
        else:
            label = side_label(side, choice.settings.backend(side))
            shown[side] = viewer.pane_words("not run", f"{label}: not run on this page yet.") | run
    return shown


page()
resources.warm_up()
