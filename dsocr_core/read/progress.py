"""Progress of a run: a bar on a terminal, or a sentence for the app."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.table import Column
from rich.text import Text

from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer


class Progress:
    """Counts the pages of a run; `say` hears what is read, and the share that is over."""

    def __init__(self, say: Callable[[str, float], None] | None = None) -> None:
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

    def skip(self) -> None:
        """A page was read by an earlier run: one less to do, so that the speed is that of the work."""
        self.count -= 1
        self._show()

    def observer(self, work: str) -> Observer:
        """Make the observer of `work`: names of a page and its backend."""
        return _StageNames(lambda words: self._show(f"{work} {words}"))

    def _show(self, words: str = "") -> None:
        if self._say and words:
            count = max(self.count, 1)
            self._say(f"page {self.over + 1:,} of {count:,}, {words}", self.over / count)


class ProgressBar(Progress):
    """A bar on a terminal, one for all pages; silent elsewhere."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn(),
            _PagesPerSecond(Column(no_wrap=True)), bars.TimeElapsedColumn(), bars.TimeRemainingColumn(),
            console=console, transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._bar.add_task("pages", total=None)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def _show(self, words: str = "") -> None:
        named: dict[str, Any] = {"description": words} if words else {}
        self._bar.update(self._task, total=self.count, completed=self.over, **named)


class _PagesPerSecond(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g} pages/s", style="progress.data.speed")


class _StageNames(Observer):
    """Shows which stage of a page runs."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def preparing(self, words: str) -> None:
        self._show(words)

    def stage_started(self, stage: Stage) -> None:
        self._show(stage)

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        if stage == Stage.POSTPROCESS:  # what comes next, a model that is loaded, has no stage
            self._show("done")
