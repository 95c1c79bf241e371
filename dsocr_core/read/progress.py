"""Progress of a run: one line for the app, or beside a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from dsocr_core.engine import preparing
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer

Say = Callable[[str, float], None]
"""Takes what is read, and the share that is over."""


class Progress:
    """Counts the pages of a run, and says how far it is."""

    def __init__(self, say: Say = lambda words, done: None) -> None:
        self._say = say
        self.count, self.over = 1, 0

    def start(self, count: int) -> None:
        """The pages are counted."""
        self.count = count
        self._show()

    def advance(self) -> None:
        """A page is over."""
        self.over += 1
        self._show()

    def observer(self, work: str) -> Observer:
        """Make the observer of `work`: names of a page and its backend."""
        return _StageNames(lambda words: self._show(f", {work} {words}"))

    def _show(self, words: str = "") -> None:
        count = max(self.count, 1)
        self._say(f"page {min(self.over + 1, count):,} of {count:,}{words}", self.over / count)


class _StageNames(Observer):
    """Shows which stage of a page runs."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def stage_started(self, stage: Stage) -> None:
        self._show(stage)

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        if stage == Stage.POSTPROCESS:  # what comes next, a model that is loaded, has no stage
            self._show("done")


class _Words(bars.ProgressColumn):
    """What is read, and what the engine prepares for it."""

    def render(self, task: bars.Task) -> Text:
        return Text(", ".join(filter(None, (task.description, preparing.words()))))


@contextmanager
def bar(console: Console) -> Iterator[Say]:
    """A bar on a terminal, one for all pages; silent elsewhere."""
    columns = bars.BarColumn(), _Words(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn()
    hidden = not sys.stderr.isatty()
    with bars.Progress(*columns, console=console, transient=True, disable=hidden) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda words, done: shown.update(task, description=words, completed=done)
