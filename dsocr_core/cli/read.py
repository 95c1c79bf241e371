"""What `run` and `compare` share: pages in, a table or one JSON document out."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.console import FAILED, OK, SafeConsole, cancelled_by_interrupt
from dsocr_core.errors import Cancelled
from dsocr_core.run.plan import RunPlan
from dsocr_core.settings import Settings, SettingsError


def read(
    settings: Settings,
    plan: RunPlan,
    chosen: Namespace,
    console: Console,
    what_is_left: str,
    measures: bool = True,
) -> int:
    """Read the pages of a plan and print what became of them; returns the exit code.

    `what_is_left` is said of the run directory when Ctrl-C ended it. Raises DsocrError, Cancelled.
    """
    if chosen.save and not settings.history:
        raise SettingsError("--save has no history to write to: give --history a path or a URL")
    # Heavy imports come after the command line is known to be good.
    from dsocr_core.backends.backend import Opening
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.history.recorder import RunRecorder
    from dsocr_core.run.pages import read_pages
    from dsocr_core.run.progress import Progress
    from dsocr_core.run.session import Session

    history = RunRecorder(settings, plan.command) if chosen.save else None
    try:
        with (
            closing(Session(settings, Opening(marks=None if measures else Marks.RANGES))) as session,
            Progress(SafeConsole(stderr=True)) as progress,
            cancelled_by_interrupt() as cancel,
            history or nullcontext(),
        ):
            report = read_pages(session, plan, progress, history, cancel)
    except Cancelled:
        words = ["cancelled"]
        if history is not None and history.id:
            words.append(f"what was finished is recorded as run {history.id}")
        if plan.directory.is_dir():
            words.append(what_is_left)
        raise Cancelled("; ".join(words)) from None
    if chosen.json:
        report.write_json(sys.stdout)
    else:
        report.print(console)
        console.print(f"written to {plan.directory}", markup=False)
        if history is not None and history.id:
            console.print(f"recorded as run {history.id}", markup=False)
    return FAILED if report.failed else OK
