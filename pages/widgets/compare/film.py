"""The pages of a document on Compare as a film strip with their verdicts, and the run of them all."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import plural
from dsocr_core.page.documents import Pages
from dsocr_core.reading.parity_records import Verdict
from pages.widgets.compare import address
from pages.widgets.compare.document_job import DocumentJob
from pages.widgets.components.gallery import show_gallery, window
from pages.widgets.shared import job_panel, navigation, resources, soon
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.strip import verdict_words

if TYPE_CHECKING:
    from dsocr_core.reading.comparison import Comparison
    from pages.widgets.compare.sidebar import Choice

_PART = 8
Frame = tuple[resources.Picture, Verdict | None, bool]
"""Thumbnail, verdict and whether anything was read of the page."""


def draw(choice: Choice, running: bool) -> None:
    """Draw the strip of a document of several pages, and where its run stands."""
    if not isinstance(choice.pages.pages, Pages):
        return
    job = _job(choice)
    with st.container(horizontal=True, vertical_alignment="center", key="film head"):
        _head(choice, job, running)
    if job is not None and job.running:
        job_panel.draw(job, "document")
    count = len(choice.pages.keys)
    if count < 2:
        return
    jobs = (job, st.session_state.get("job"))
    ended = max((each.number for each in jobs if each and not each.running), default=0)
    waited = {
        number: soon.made(("film", _about(choice), number, ended), partial(_frame, choice, number))
        for number in window(count, choice.position, _PART)
    }

    show_gallery(
        "film", "Pages of the document", "strip", count, choice.position,
        lambda shown: [_item(choice, number, soon.result(waited[number]), job) for number in shown],
        address.show_page, _PART,
    )  # fmt: skip
    soon.redraw_made(waited.values())
    if job is not None:
        soon.redraw(lambda: len(job.verdicts), job.running)


def read(choice: Choice) -> Comparison | None:
    """Give what this tab's run of the document has read of the chosen page."""
    job = _job(choice)
    return job.comparison(resources.history, choice.request) if job and choice.request else None


def _job(choice: Choice) -> DocumentJob | None:
    job: DocumentJob | None = st.session_state.get("document job")
    return job if job is not None and job.about == _about(choice) else None


def _about(choice: Choice) -> tuple[str, str, tuple[str, ...]]:
    return repr(choice.settings), choice.pages.name, choice.pages.keys


def _frame(choice: Choice, number: int) -> Frame:
    page = choice.pages.take(number)
    picture = resources.thumbnail(page.path)
    request = choice.settings.request(page.path, page.name, page.more)
    comparison = resources.runner().page_results(choice.settings, request, None).comparison
    report = comparison.report if comparison else None
    return picture, report.verdict if report else None, comparison is not None


def _item(choice: Choice, number: int, frame: Frame | None, job: DocumentJob | None) -> dict[str, Any]:
    name = choice.pages.keys[number]
    verdict, read = frame[1:] if frame else (None, False)
    if job is not None and name in job.verdicts:
        verdict, read = job.verdicts[name], True
    words = verdict_words(verdict)
    said = words.words if verdict else "not compared" if read else "not read" if frame else "…"
    return {
        "key": name,
        "name": name.rpartition("#")[2],
        "title": f"{name}: {said}",
        "words": said,
        "tone": words.tone,
        "sign": words.icon,
        "url": resources.picture_url(frame[0], f"film.{name}") if frame else "",
    }


def _head(choice: Choice, job: DocumentJob | None, running: bool) -> None:
    """Say where the run of all pages stands; its button, and the way to its review."""
    count = len(choice.pages.keys)
    words = plural(count, "document" if choice.pages.in_one_prompt else "page")
    if job is not None and not job.running:
        state = job.view()
        if state.error:
            show_error(state.error)
        end = " before it was cancelled" if state.state == "cancelled" else ""
        recorded = f"recorded as run {job.run_id}" if job.run_id else "not recorded"
        words = f"{len(job.verdicts):,} of {words} read{end}: {job.counts or 'none compared'}; {recorded}"
    st.html(f"<div role='status' class='dsocr-reasons'>{escape(words)}</div>", width="stretch")
    run_id = job.run_id if job is not None and not job.running else None
    if run_id and st.button("Review this run", key="film review", type="primary", width="content"):
        resources.history().refresh()
        navigation.to_review(run_id)
    if count > 1 and st.button(
        f"Run all {count:,}", key="run all", disabled=running or not choice.sides or bool(choice.refusal),
        width="content", help="Every page one after another, recorded as one run.",
    ):  # fmt: skip
        _start(choice)


def _start(choice: Choice) -> None:
    pages = choice.pages
    assert isinstance(pages.pages, Pages)
    try:
        runner = resources.runner()
        with runner.using(choice.settings) as session:
            job = DocumentJob(session, _about(choice), pages.pages, choice.sides, pages.in_one_prompt)
            runner.begin(job, choice.settings, job_panel.open_tab())
    except DsocrError as error:
        show_error(error)
        return
    st.session_state["document job"] = job
    st.rerun()
