"""`history COMMAND`: list, sql, import, export, trash, check."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dsocr_core.base.console import FAILED, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import visible
from dsocr_core.base.system import memory_limit
from dsocr_core.cli.answers import Answer, Shown, frame_table, records
from dsocr_core.cli.options import Command
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.runs.history import History

_COLUMNS = (
    "run_id", "created", "source", "backends", "engine", "attention", "gpu", "preset", "pages", "failed",
    "tags",
)  # fmt: skip
_WIDE = 140
"""Characters that all `_COLUMNS` need."""
_MOST_ROWS = 10_000
"""Rows of an answer that are laid out as a table."""
_ROOM = 2**30
"""For threads, their stacks and allocators, which take addresses and hardly any memory."""


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """Place of the runs."""

    history: str | None = None

    @contextlib.contextmanager
    def opened(self, name_problems: bool = True) -> Iterator[History]:
        """The history and the project's own runs. Those left out are named on stderr."""
        # pandas and DuckDB are loaded after the command line is known to be good.
        from dsocr_core.runs.history import SEED_LOCATION, History

        location = history_location(Settings(history=self.history) if self.history else Settings())
        own = Path(location).resolve() == SEED_LOCATION
        with History(location, *(() if own else (SEED_LOCATION,))) as history:
            for entry, reason in history.problems.items() if name_problems else ():
                print(visible(f"left out {entry}: {reason}"), file=sys.stderr)
            yield history


def list_runs(options: HistoryOptions, *, limit: int = 50, trash: bool = False) -> Answer:
    """List the runs, newest first.

    Args:
        limit: how many at most
        trash: those in the trash instead
    """
    with options.opened() as history:
        frame = history.runs(limit=limit, trashed=trash)

    def show(console: Console) -> None:
        few = "run_id", "created", "preset", "pages", "failed"
        console.print(frame_table(frame[[*(_COLUMNS if console.width >= _WIDE else few)]]))

    return Answer({"runs": records(frame)}, (show,))


def sql(
    options: HistoryOptions,
    statement: str | None = None,
    *,
    time_limit_s: float = 60.0,
    memory_limit_mib: int = 1024,
) -> Answer:
    """Answer one SELECT; without one list the tables that it may name, with their columns.

    Args:
        statement: SELECT ... (default: the list of tables)
        time_limit_s: seconds until it is stopped
        memory_limit_mib: memory that it may take
    """
    from dsocr_core.runs.history import READABLE
    from dsocr_core.runs.statements import Limits

    # DuckDB counts its own blocks; what a function allocates beside them, the system refuses.
    with options.opened() as history, memory_limit(2 * memory_limit_mib * 2**20 + _ROOM):
        found = history.sql(statement or READABLE, Limits(time_limit_s, memory_limit_mib))

    shown: list[Shown] = [frame_table(found.head(_MOST_ROWS))]
    if len(found) > _MOST_ROWS:
        shown.append(f"only the first {_MOST_ROWS:,} rows are shown; --json writes all")
    return Answer({"rows": records(found)}, shown)


def import_runs(options: HistoryOptions, paths: tuple[Path, ...]) -> Answer:
    """Import run directories, exported runs and runs of other programs.

    Args:
        paths: folders (whole trees too), zip or CSV files
    """
    from dsocr_core.runs.importers.detect import import_paths

    if absent := [path for path in paths if not path.exists()]:
        raise DsocrError(f"history import: {absent[0]}: no such file or folder; check the path")
    with options.opened() as history:
        report = import_paths(history, paths)
    lines = [
        Text(f"{word} {run.run_id} ({run.source}) from {run.origin}")
        for word, runs in (("imported", report.imported), ("there   ", report.known))
        for run in runs
    ]
    first = {item.reason: item.path for item in reversed(report.skipped)}
    for reason, count in Counter(item.reason for item in report.skipped).most_common():
        more = f" and {count - 1:,} more" if count > 1 else ""  # --json names each
        lines.append(Text(f"skipped  {first[reason]}{more}: {reason}", style="yellow"))
    counts = len(report.imported), len(report.known), len(report.skipped)
    lines.append(Text("{} imported, {} there already, {} skipped".format(*counts)))
    if not (taken := report.imported or report.known):
        nothing = "nothing was taken: give a run's folder or zip, a kernel summary, a profile, a sweep"
        lines.append(Text(nothing))
    return Answer(report.document(), lines, OK if taken else FAILED)


def export(
    options: HistoryOptions,
    runs: tuple[str, ...],
    *,
    to: Path | None = None,
    omnidocbench: Path | None = None,
    backend: str | None = None,
) -> Answer:
    """Write runs as a zip that imports elsewhere, or the texts of one for OmniDocBench's evaluator.

    Args:
        runs: ids of runs
        to: the zip to make
        omnidocbench: a folder to make, with a Markdown file a page
        backend: whose texts, where a run has several
    """
    from dsocr_core.runs.export import export_runs, export_texts

    target = omnidocbench or to
    if target is None or (to and omnidocbench) or (omnidocbench and len(runs) != 1):
        raise DsocrError("history export: give runs and --to FILE.zip, or one run and --omnidocbench DIR")
    with options.opened() as history:
        if omnidocbench is not None:
            what, count = "texts", export_texts(history, runs[0], backend, omnidocbench)
        else:
            what, count = "runs", export_runs(history, runs, target)
    line = Text(f"written to {target}: {what} {count:,}")
    return Answer({"target": str(target), what: count}, (line,))


def trash(
    options: HistoryOptions,
    runs: tuple[str, ...] = (),
    *,
    undo: bool = False,
    empty: bool = False,
) -> Answer:
    """Put runs into the trash, take them out, or empty it.

    Args:
        runs: ids of runs
        undo: take the runs out of the trash
        empty: delete what is in the trash for good
    """
    if undo and empty:
        raise DsocrError("history trash: give --undo or --empty, not both")
    if empty == bool(runs):
        raise DsocrError("history trash: give the ids of runs, or --empty alone")
    with options.opened() as history:
        if empty:
            what, number = "deleted", history.empty_trash()
        else:
            (history.restore if undo else history.trash)(runs)
            what, number = "restored" if undo else "trashed", len(runs)
    return Answer({what: number}, (f"{number} {what}",))


def check(options: HistoryOptions) -> Answer:
    """Hold every file against its checksum; name what is damaged or left over."""
    from dsocr_core.runs.history import check as check_history

    with options.opened(name_problems=False) as history:
        report = check_history(history)
    lines = [Text(f"damaged  {entry}: {reason}", style="red") for entry, reason in report.damaged]
    other = report.other_versions.items()
    lines += [Text(f"not read  runs/{run_id}: {reason}", style="yellow") for run_id, reason in other]
    lines.append(Text(f"{report.files:,} files of {report.entries:,} runs are as they were written"))
    for item in report.leftovers:
        words = f"{item.path}: {item.bytes:,} bytes of a writer that was stopped: delete that folder"
        lines.append(Text(words, style="yellow"))
    if report.damaged:
        way_out = "history trash RUN hides a run, history import puts it back from its zip"
        lines.append(Text(f"{len(report.damaged)} damaged: {way_out}"))
    return Answer(asdict(report), lines, FAILED if report.damaged else OK)


COMMANDS: dict[str, Command] = {
    "list": list_runs, "sql": sql, "import": import_runs, "export": export, "trash": trash, "check": check,
}  # fmt: skip
