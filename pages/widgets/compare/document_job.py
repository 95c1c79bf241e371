"""Run of all pages of a document or folder into a run of the history. No Streamlit here."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dsocr_core.base.errors import DsocrError
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.reading.parity_records import VERDICT_WORDS, Verdict
from dsocr_core.reading.records import SIDES, OcrRequest, Side
from dsocr_core.runs.recorder import RunRecorder
from pages.widgets.shared.job import Job

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.read.report import Report
    from dsocr_core.reading.comparison import Comparison
    from dsocr_core.runs.store import History
    from pages.widgets.shared.app_session import AppSession

_MOST_LATEST = 32
"""Pages whose results stay in memory: of a long document the others are read from its run."""


class DocumentJob(Job["Report"]):
    """One such run, as `dsocr compare --save` makes it. Cancelled, what was finished by then is recorded."""

    def __init__(
        self, session: AppSession, about: object, pages: Pages, sides: tuple[Side, ...], in_one_prompt: bool
    ) -> None:
        super().__init__("document", about, self._read)
        self.verdicts: dict[str, Verdict | None] = {}
        """By name of a page that is over, None where it was not compared."""
        self.run_id: str | None = None
        self._latest: OrderedDict[str, Comparison | None] = OrderedDict()
        self._session, self._pages, self._sides = session, pages, sides
        self._together = sys.maxsize if in_one_prompt else None

    def _read(self, job: Job[Report]) -> Report:
        from dsocr_core.read.pages import read_pages
        from dsocr_core.read.progress import Listener

        directory, settings = new_run_directory("compare"), self._session.settings
        plan = RunPlan((), directory, self._sides, found=self._pages, together=self._together)
        run = RunRecorder(settings, out=directory, save=bool(settings.history))
        try:
            return read_pages(self._session, plan, Listener(self.say, self._page_over), run, self.token)
        finally:
            self.run_id = run.id

    def _page_over(self, name: str, comparison: Comparison | None) -> None:
        report = comparison.report if comparison else None
        self._keep(name, comparison)
        self.verdicts[name] = report.verdict if report else None

    def _keep(self, name: str, comparison: Comparison | None) -> None:
        with self._lock:
            self._latest[name] = comparison
            while len(self._latest) > _MOST_LATEST:
                self._latest.popitem(last=False)

    def comparison(self, history: Callable[[], History], request: OcrRequest) -> Comparison | None:
        """Give what it has read of a page: the result cache has it at the end, and not of every backend."""
        name = request.name
        if name in self.verdicts and name not in self._latest and self.run_id:
            from dsocr_core.runs.results import compared, readings

            try:
                read = readings(history(), self.run_id, [name])
                a, b = ((read, (name, self._session.settings.backend(side))) for side in SIDES)
                found = compared(a, b, self._session.settings.tolerance)
                self._keep(name, replace(found, request=request))
            except DsocrError:
                self._keep(name, None)
        return self._latest.get(name)

    @property
    def counts(self) -> str:
        """Pages by verdict: "2 identical, 1 differs, 1 not compared"."""
        found = Counter(self.verdicts.values())
        words = [f"{found[verdict]:,} {said}" for verdict, said in VERDICT_WORDS.items() if found[verdict]]
        return ", ".join([*words, *([f"{found[None]:,} not compared"] if found[None] else [])])
