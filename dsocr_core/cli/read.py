"""Common part of `run` and `compare`: pages in, a table or one JSON document out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr_core.base.console import FAILED, OK, SafeConsole, cancelled_by_interrupt
from dsocr_core.base.errors import Cancelled
from dsocr_core.cli.answers import Answer, Shown
from dsocr_core.engine.early import begin_early
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.read.report import Report


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Pages, and where what is read of them goes.

    Args:
        pages: pages of PDF files, like 1-3,7
        pages_together: pages of a document in one prompt, without a number all; given images are one document
        recursive: read folders below given ones too; pages are named by their path from there
        out: run directory to write (default: data/runs/TIME-COMMAND)
        save: record it as a run of the history, with the FLOPs of its pages
    """

    images: tuple[str, ...] = field(default=(), kw_only=False)
    pages: str | None = None
    pages_together: int | None = None
    recursive: bool = False
    out: str | None = None
    save: bool = False

    def plan(self, command: str, typed: str, resume: str | None = None, **more: Any) -> RunPlan:
        """Plan of reading these pages into `out`, else a new directory of that command."""
        return RunPlan(
            images=tuple(map(Path, self.images)), pages=self.pages, recursive=self.recursive, command=typed,
            directory=Path(resume or self.out or new_run_directory(command)), resume=resume is not None,
            together=self.pages_together, **more,
        )  # fmt: skip

    def expanded(self, settings: Settings) -> Pages:
        """The pages themselves. Raises DsocrError."""
        from dsocr_core.page.documents import expand

        limits = settings.pdf_dpi, settings.max_pixels
        found = expand(map(Path, self.images), self.pages, None, *limits, recursive=self.recursive)
        return found if self.pages_together is None else found.together(self.pages_together)


@dataclass(frozen=True)
class Compared:
    """Pages that were read or compared.

    `runs` are ids of the runs that hold them, one a pair of backends; `lines` are printed after what is
    `shown`, and `recorded` those about the runs. `why` has causes of differences, where they were asked for;
    `explain` puts them into the rows of pages that were just compared.
    """

    failed: int
    document: dict[str, Any] | Callable[..., None]
    shown: Sequence[Shown]
    runs: Sequence[str] = ()
    lines: Sequence[Shown] = ()
    recorded: Sequence[str] = ()
    explain: Callable[[Mapping[str, str]], None] | None = None
    why: dict[str, Any] | None = None

    @classmethod
    def of(cls, report: Report, runs: Sequence[str | None], lines: Sequence[str] = ()) -> Compared:
        """What a report says; of several pairs of backends each run is named with its pair."""
        a, *others = report.backends
        pairs = [f"{a} and {b} are " for b in others] if len(others) > 1 else [""]
        recorded = [f"{pair}recorded as run {run}" for pair, run in zip(pairs, runs, strict=False) if run]
        shown, ids = [report.print], [run for run in runs if run]
        return cls(report.failed, report.write_json, shown, ids, lines, recorded, report.explain)

    def answer(self) -> Answer:
        """What is shown, then the lines."""
        document, why = self.document, {} if self.why is None else {"why": self.why}
        document = partial(document, **why) if callable(document) else document | why
        return Answer(document, (*self.shown, *self.lines, *self.recorded), FAILED if self.failed else OK)


def read(
    all_settings: Sequence[Settings],
    plan: RunPlan,
    record_in: str | None,
    goes_on: str,
    measures: bool = True,
) -> Compared:
    """Read the pages of a plan.

    Several settings are one A with several B, as `settings_against` gives them; each pair is a run of its own
    in the history at `record_in`, where one is named, with the FLOPs of its pages. `goes_on` is said of the
    run directory when Ctrl-C ended it. Raises DsocrError, Cancelled.
    """
    if record_in == "":
        raise SettingsError("--save has no history to write to: give --history a path")
    # Heavy imports come after the command line is known to be good.
    if all_settings[0].engine == "fast":
        begin_early(all_settings[0].device)
    from analytic_model.counted import run_rows
    from dsocr_core.backends.backend import Opening
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.read.progress import ProgressBar
    from dsocr_core.read.run import read_run
    from dsocr_core.read.session import Session
    from dsocr_core.runs.record import Recording

    opening = Opening(marks=None if measures else Marks.RANGES, stores=False)
    save, one = record_in is not None, len(all_settings) == 1
    recordings = [
        Recording(
            replace(each, history=record_in or each.history), plan.command, save=save,
            out=plan.directory if one else None, count=run_rows if save else None,
        )
        for each in all_settings
        if one or save
    ]  # fmt: skip
    try:
        with ExitStack() as stack:
            sessions = [stack.enter_context(closing(Session(each, opening))) for each in all_settings]
            progress = stack.enter_context(ProgressBar(SafeConsole(stderr=True)))
            cancel = stack.enter_context(cancelled_by_interrupt())
            report = read_run(sessions, plan, progress, recordings, cancel)
    except Cancelled:
        names = ", ".join(each.id for each in recordings if each.id)
        finished = f"; what was finished is recorded as run {names}" if names else ""
        left = f"; {goes_on}" if plan.directory.is_dir() else ""
        raise Cancelled(f"cancelled{finished}{left}") from None
    return Compared.of(report, [each.id for each in recordings], [f"written to {plan.directory}"])
