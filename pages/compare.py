"""Compare: one page as A and B, what differs, who is right, and why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.reading.records import SIDES, Side
from pages.widgets.compare import address, commands, document, example, files, progress, sidebar
from pages.widgets.compare.address import STATE, value
from pages.widgets.pair import cause, details, differences, layers, viewer
from pages.widgets.pair.answer import answer, facts, recorded_words
from pages.widgets.pair.shown import PairView, result_words, rows_of, sheets_of
from pages.widgets.pair.truth import truth_of
from pages.widgets.shared import figure, heading, resources
from pages.widgets.shared.job_panel import open_tab
from pages.widgets.shared.labels import side_label, side_labels, side_letter
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.run_job import ReadJob
from pages.widgets.shared.runner import PageResults, run_key
from pages.widgets.shared.verdicts import answer_html, verdict_html

if TYPE_CHECKING:
    from pages.widgets.compare.sidebar import Choice


def page() -> None:
    address.read(example.first)
    heading.draw(STATE)
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
    request = choice.request
    assert request is not None
    if pressed and _start(choice, choice.sides):
        st.rerun()
    # Read once: a run that ends while the page is drawn is drawn by the next rerun.
    running = job if job is not None and job.running else None
    document.draw(choice, _running())
    with st.spinner("Reading recorded results", show_time=True):
        results = (example.results() if value("example") else None) or (
            resources.runner().page_results(choice.settings, request, job)
        )
    if running is not None:
        progress.draw(running, side_labels(choice.settings))
    st.fragment(_draw_results)(choice, picture, results, job, value("example"))


def _running() -> bool:
    """Tell whether this tab reads something: a page, or all pages of a document."""
    return any((job := st.session_state.get(name)) and job.running for name in ("job", document.JOB))


def _start(choice: Choice, sides: tuple[Side, ...]) -> bool:
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


def _about(job: ReadJob | None, choice: Choice) -> bool:
    """Tell whether the job is about the chosen page under the chosen settings."""
    request = choice.request
    return job is not None and request is not None and job.about == run_key(choice.settings, request)


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
    assert choice.request is not None
    # A page that was not read has no results, and its viewer no boxes.
    pair = results.comparison or Comparison(choice.request)
    count = sheets_of(pair)
    if address.take_turns(choice.pages.keys, choice.position, count):
        st.rerun()
    shown = _shown(choice, results, pair, STATE.sheet(count))
    _answer(choice, results, shown, job)
    if shown.sheet:
        picture = resources.page_picture(pair.request.images[shown.sheet], choice.settings.max_pixels)
    at, pages = (shown.sheet, count) if count > 1 else (choice.position, len(choice.pages.keys))
    verdict = VERDICT_WORDS[shown.report.verdict] if shown.report else "no verdict"
    sides = viewer.draw(
        shown,
        viewer.image_values(
            f"{choice.page.key}{shown.sheet or ''}", picture, (picture.width, picture.height), "viewer"
        ),
        _pane_words(choice, pair, job),
        (value("mode"), partial(address.put, "mode")),
        f"{choice.page.name}: {verdict}. {answer(shown)}",
        position={"index": at, "count": pages, "first": at == 0, "last": at + 1 >= pages},
        turns={"taken": value("taken"), "subject": value("page")},
    )
    if sides and not _running() and _start(choice, sides):
        st.rerun()
    if pair.results:
        why = commands.find_cause(choice.settings, pair)
        figure.tabs(
            {
                "Differences": lambda: differences.draw(shown),
                "Cause": lambda: cause.draw(shown, lambda: layers.draw(choice.settings, pair), why),
                "Details": lambda: details.draw(shown, lambda: files.draw(shown)),
            },
            STATE,
        )
    address.write()


def _shown(choice: Choice, results: PageResults, pair: Comparison, sheet: int) -> PairView:
    assert choice.page is not None
    rows, truth = rows_of(results.comparison, sheet), truth_of(choice.page.path)
    selected, names = STATE.selected(len(rows)), side_labels(choice.settings)
    view = PairView(pair, names, rows, selected, STATE.select, sheet=sheet, truth=truth)
    return replace(view, known_causes=(example.CAUSE,)) if value("example") else view


def _answer(choice: Choice, results: PageResults, shown: PairView, job: ReadJob | None) -> None:
    """The verdict with its sentence, the figures under it, and what one can do."""
    for problem in results.problems:
        show_error(problem)
    running = job is not None and job.running
    if running and _about(job, choice) and shown.report is None:
        return  # the panel says it
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(_verdict(choice, results, shown), width="stretch")
        example.draw()
        if shown.results:
            with st.popover("Command", width="content", key="commands"):
                st.caption("Read this page again:")
                command = commands.read_again(shown.comparison.request, choice.settings)
                st.code(command, language="bash", wrap_lines=True)
        again = bool(results.recorded) and st.button(
            "Run again", key="run again", width="content", disabled=not choice.sides or _running()
        )
    if again and _start(choice, choice.sides):
        st.rerun()
    if job is not None and results.cancelled and _about(job, choice):
        progress.show_partial(job, side_labels(choice.settings))


def _verdict(choice: Choice, results: PageResults, shown: PairView) -> str:
    note = recorded_words(results.recorded_at) if results.recorded_at else ""
    if results.cancelled:
        note = f"your run was cancelled{f'; {note}' if note else ''}"
    if results.comparison is None:
        word = "CANCELLED" if results.cancelled else "NOT RUN"
        return answer_html(word, "none", "No result of this page under these settings yet.")
    if shown.report is None:
        missing = [side for side in SIDES if side not in shown.results]
        failed = [side for side in missing if side in shown.comparison.errors]
        words = [f"{side_letter(side)} {'failed' if side in failed else 'has not run'}." for side in missing]
        return answer_html("NOT COMPARED", "none", " ".join(words), facts(shown), note)
    return verdict_html(shown.report.verdict, answer(shown), facts(shown), note)


def _pane_words(choice: Choice, pair: Comparison, job: ReadJob | None) -> dict[Side, dict[str, str]]:
    """For each side the line over its pane, and a notice with a button where there is nothing to show."""
    results, errors = pair.results, pair.errors
    running = {view.side: view.state for view in job.side_views()} if job and job.running else {}
    running = running if _about(job, choice) else {}
    if not results and not errors and not running:
        nothing = {"summary": "not run", "message": "", "action": "", "action_words": ""}
        words = {"message": "Neither side has read this page yet."}
        run = {} if _running() else {"action": "both", "action_words": "Run both"}
        return {"a": nothing | words | run, "b": nothing}
    shown: dict[Side, dict[str, str]] = {}
    for side in SIDES:
        run = {"action": side, "action_words": f"Run {side_letter(side)}"}
        if (result := results.get(side)) is not None:
            before = "earlier run: " if side in running else ""
            shown[side] = {"summary": f"{before}{result_words(result)}", "message": "", "action": ""}
        elif side in running:
            shown[side] = {"summary": running[side], "message": "", "action": ""}
        elif side in errors:
            shown[side] = {"summary": "failed", "message": f"{side_letter(side)} failed; run it again."} | run
        else:
            label = side_label(side, choice.settings.backend(side))
            shown[side] = {"summary": "not run", "message": f"{label}: not run on this page yet."} | run
    return shown


page()
resources.warm_up()
