"""Answers of commands: one JSON document, and what people are shown of it; tables of pandas."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import FAILED, OK, titled_table
from dsocr_core.base.formatting import amount, percent
from dsocr_core.base.sanitise import json_line, visible

if TYPE_CHECKING:
    import pandas as pd

    from dsocr_core.read.report import Report

Columns = Mapping[str, tuple[str, str]]
"""Heading and unit by column of figures: "%" is a share of 1, "" a name or a bare number."""
Shown = RenderableType | Callable[[Console], None]
"""Shown to people; a callable prints itself."""


@contextmanager
def cancelled_by_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second one ends this process at once. For the main thread."""
    cancel = threading.Event()

    def stop(*_: object) -> None:
        cancel.set()
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)


@dataclass(frozen=True)
class Answer:
    """Output of a command: a JSON document, or a function that writes it, what people see, an exit code."""

    document: Any | Callable[[TextIO], None]
    shown: Sequence[Shown] = ()
    code: int = OK

    def print(self, as_json: bool, console: Console) -> int:
        """Print one form. Returns the exit code."""
        for each in () if as_json else self.shown:
            if callable(each):
                each(console)
            else:
                console.print(each, markup=False, highlight=False)
        if as_json and callable(self.document):
            self.document(sys.stdout)
        elif as_json:
            print(json_line(self.document))
        return self.code


@dataclass(frozen=True)
class Compared:
    """Outcome of pages that were read or compared.

    `runs` are the ids of their runs, one a pair of backends. `lines` are printed after `shown`, then
    `recorded`, which names the runs.
    """

    failed: int
    document: dict[str, Any] | Callable[[TextIO], None]
    shown: Sequence[Shown]
    runs: Sequence[str] = ()
    lines: Sequence[Shown] = ()
    recorded: Sequence[str] = ()

    @classmethod
    def of(cls, report: Report, runs: Sequence[str | None], lines: Sequence[str] = ()) -> Compared:
        """Outcome of a report."""
        ids = [run for run in runs if run]
        recorded = [f"recorded as run {run}" for run in ids]
        return cls(report.failed, report.write_json, [report.print], ids, lines, recorded)

    def answer(self) -> Answer:
        """Shown parts, then the lines."""
        return Answer(
            self.document, (*self.shown, *self.lines, *self.recorded), FAILED if self.failed else OK
        )


def written(file: str | Path, content: str) -> str:
    """Write a report. Returns the line that says so. Raises OSError, whose file and cause are one line."""
    Path(file).write_text(content, encoding="utf-8")
    return f"written to {file}"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready values. Unknown is null."""
    text = frame.to_json(orient="records", date_format="iso", date_unit="ms", double_precision=15)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def figures_table(frame: pd.DataFrame, columns: Columns, title: str = "") -> Table:
    """A table of figures; the first column names the rows, columns without a figure are left out."""
    names = [frame.columns[0], *(name for name in columns if frame[name].notna().any())]
    table = titled_table(title, *(columns.get(name, (name.capitalize(), ""))[0] for name in names))
    for row in frame[names].itertuples(index=False):
        table.add_row(
            *(_figure(value, columns.get(name, ("", ""))[1]) for name, value in zip(names, row, strict=True))
        )
    return table


def _figure(value: Any, unit: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return percent(100 * value) if unit == "%" else amount(value, unit)


def frame_table(frame: pd.DataFrame) -> Table:
    """A table of any values. Unknown is empty."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in frame.columns:
        table.add_column(Text(str(column)), overflow="fold", no_wrap=column in ("run_id", "created"))
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(visible(_text(value))) for value in row))
    return table


def _text(value: Any) -> str:
    import pandas as pd

    if isinstance(value, list | tuple) or getattr(value, "shape", None):
        return ", ".join(map(str, value))
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
