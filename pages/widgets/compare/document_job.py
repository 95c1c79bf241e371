"""Run of all pages of a document or folder into a run of the history. No Streamlit here."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.reading.parity_records import VERDICT_WORDS, Verdict
from dsocr_core.reading.records import Side
from dsocr_core.runs.recorder import RunRecorder
from pages.widgets.shared.job import Job

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.read.report import Report
    from pages.widgets.shared.app_session import AppSession


class DocumentJob(Job["Report"]):
    """One such run, as `dsocr compare --save` makes it. Cancelled, what was finished by then is recorded."""

    def __init__(
        self, session: AppSession, about: object, pages: Pages, sides: tuple[Side, ...], in_one_prompt: bool
    ) -> None:
        super().__init__("document", about, self._read)
        self.verdicts: dict[str, Verdict | None] = {}
        """By name of a page that is over, None where it was not compared."""
        self.run_id: str | None = None
        self._session, self._pages, self._sides = session, pages, sides
        self._together = sys.maxsize if in_one_prompt else None

    def _read(self, job: Job[Report]) -> Report:
        from dsocr_core.read.pages import read_pages
        from dsocr_core.read.progress import Listener

        directory, settings = new_run_directory("compare"), self._session.settings
        plan = RunPlan((), directory, self._sides, found=self._pages, together=self._together)
        run = RunRecorder(settings, out=directory, save=bool(settings.history))
        try:
            return read_pages(
                self._session, plan, Listener(self.say, self.verdicts.__setitem__), run, self.token
            )
        finally:
            self.run_id = run.id

    @property
    def counts(self) -> str:
        """Pages by verdict: "2 identical, 1 differs, 1 not compared"."""
        found = Counter(self.verdicts.values())
        words = [f"{found[verdict]:,} {said}" for verdict, said in VERDICT_WORDS.items() if found[verdict]]
        return ", ".join([*words, *([f"{found[None]:,} not compared"] if found[None] else [])])
