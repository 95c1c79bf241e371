"""What `run` and `compare` share: pages in, a table or one JSON document out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console

from dsocr_core.console import FAILED, OK, SafeConsole, cancelled_by_interrupt
from dsocr_core.errors import Cancelled
from dsocr_core.run.plan import RunPlan
from dsocr_core.settings import Settings, SettingsError


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Pages, and where what is read of them goes.

    Args:
        pages: pages of PDF files, like 1-3,7
        recursive: read the folders below given ones too; pages are named by their way from there
        out: run directory to write (default: data/runs/TIME-COMMAND)
        save: record it as a run of the history
    """

    images: tuple[str, ...] = field(kw_only=False)
    pages: str | None = None
    recursive: bool = False
    out: str | None = None
    save: bool = False
    json: bool = False


class Told(Protocol):
    """What became of pages, wherever their results are from."""

    @property
    def failed(self) -> int: ...

    def write_json(self, stream: TextIO) -> None: ...

    def print(self, console: Console) -> None: ...


def tell(report: Told, chosen: PageOptions, console: Console, lines: Iterable[str] = ()) -> int:
    """Print a report, and for people these lines after it; returns the exit code."""
    if chosen.json:
        report.write_json(sys.stdout)
    else:
        report.print(console)
        for line in lines:
            console.print(line, markup=False)
    return FAILED if report.failed else OK


def read(
    all_settings: Sequence[Settings],
    plan: RunPlan,
    chosen: PageOptions,
    console: Console,
    what_is_left: str,
    measures: bool = True,
) -> int:
    """Read the pages of a plan and print what became of them; returns the exit code.

    Several settings are one A with several B, as `settings_against` gives them; each pair is a run of its own
    in the history. `what_is_left` is said of the run directory when Ctrl-C ended it. Raises DsocrError,
    Cancelled.
    """
    first = all_settings[0]
    if chosen.save and not first.history:
        raise SettingsError("--save has no history to write to: give --history a path or a URL")
    # Heavy imports come after the command line is known to be good.
    from dsocr_core.backends.backend import Opening
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.history.recorder import RunRecorder
    from dsocr_core.run.against import read_against
    from dsocr_core.run.pages import read_pages
    from dsocr_core.run.progress import Progress
    from dsocr_core.run.session import Session

    opening = Opening(marks=None if measures else Marks.RANGES, stores=False)
    one = len(all_settings) == 1
    runs = [
        RunRecorder(each, plan.command, out=plan.directory if one else None, save=chosen.save)
        for each in all_settings
        if one or chosen.save
    ]
    try:
        with ExitStack() as stack:
            sessions = [stack.enter_context(closing(Session(each, opening))) for each in all_settings]
            progress = stack.enter_context(Progress(SafeConsole(stderr=True)))
            cancel = stack.enter_context(cancelled_by_interrupt())
            if one:
                report: Told = read_pages(sessions[0], plan, progress, runs[0], cancel)
            else:
                report = read_against(sessions, plan, progress, cancel, runs)
    except Cancelled:
        words = ["cancelled"]
        if ids := [run.id for run in runs if run.id]:
            words.append(f"what was finished is recorded as run {', '.join(ids)}")
        if plan.directory.is_dir():
            words.append(what_is_left)
        raise Cancelled("; ".join(words)) from None
    pairs = [" and ".join(each.side_names[: len(plan.sides)]) for each in all_settings]
    recorded = [
        f"{pair} are recorded as run {run.id}" if len(pairs) > 1 else f"recorded as run {run.id}"
        for pair, run in zip(pairs, runs, strict=False)
        if run.id
    ]
    return tell(report, chosen, console, [f"written to {plan.directory}", *recorded])
