"""All pages of a document or folder as one run of the history, which Review then opens."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine import preparing
from dsocr_core.page.documents import Pages
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.runs.commands import command_line
from dsocr_core.runs.record import Recording
from pages.widgets.shared import job as jobs
from pages.widgets.shared import resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import go

if TYPE_CHECKING:
    from dsocr_core.read.report import Report
    from dsocr_core.reading.records import Side
    from pages.widgets.compare.sidebar import Choice
    from pages.widgets.shared.runner import AppSession

JOB = "document job"
"""The session's key of this tab's run of a document."""


class DocumentJob(jobs.Job["Report"]):
    """One such run, as `dsocr compare --save` makes it. Cancelled, what was finished by then is recorded."""

    def __init__(
        self, session: AppSession, about: object, pages: Pages, sides: tuple[Side, ...], in_one_prompt: bool
    ) -> None:
        super().__init__("document", about, self._read)
        self.run_id: str | None = None
        self.beside = preparing.words
        self._session, self._pages, self._sides = session, pages, sides
        self._together = sys.maxsize if in_one_prompt else None

    def _read(self, _: jobs.Job[Report]) -> Report:
        from dsocr_core.read.progress import Progress
        from dsocr_core.read.run import read_run

        directory, settings = new_run_directory("compare"), self._session.settings
        plan = RunPlan((), directory, self._sides, found=self._pages, together=self._together)
        files = [*dict.fromkeys(str(each.path) for one in self._pages.prompts for each in one.images)]
        command = command_line("compare", asdict(settings) | {"history": None}, files)
        run = Recording(settings, command, directory, save=bool(settings.history))
        try:
            return read_run([self._session], plan, Progress(self.say), [run], self.token)
        finally:
            self.run_id = run.id


def draw(choice: Choice, running: bool) -> None:
    """Draw the button of a document of several pages, or how far its run is; when that ends Review opens."""
    pages, sides, settings = choice.pages, choice.sides, choice.settings
    found = pages.pages
    if not isinstance(found, Pages):
        return
    about = repr(settings), pages.name, pages.keys
    job: DocumentJob | None = st.session_state.get(JOB)
    if job is not None and job.about == about:
        if job.running:
            jobs.panel(job, "document")
            return
        _ended(job)
    count = len(pages.keys)
    if count > 1 and st.button(
        f"Run all {count:,} pages", key="run all", width="content",
        disabled=running or not sides or bool(choice.refusal),
        help="One after another, recorded as one run, which then opens on Review.",
    ):  # fmt: skip
        try:
            st.session_state[JOB] = resources.runner().begin(
                settings, lambda of: DocumentJob(of, about, found, sides, pages.in_one_prompt),
                jobs.tab_watch(),
            )  # fmt: skip
        except DsocrError as error:
            show_error(error)
        else:
            st.rerun()


def _ended(job: DocumentJob) -> None:
    """Open the run on Review, once; what ended early is said, and waits for a click."""
    if job.error:
        show_error(job.error)
    elif job.run_id is None:
        st.caption("All pages were read. No run was recorded: the settings name no history.")
    whole = job.state == "done"
    if job.run_id and (whole or st.button("Review what was read", key="review document", width="content")):
        del st.session_state[JOB]
        resources.history().refresh()
        go("review", review=job.run_id)
