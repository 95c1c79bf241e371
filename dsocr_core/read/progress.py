"""Progress of a run: a bar on a terminal, or a sentence for the app."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer


class Progress:
    """Hears how many pages there are, how many are over, and what is read; this one says nothing of it."""

    def start(self, count: int) -> None:
        """The pages are counted."""

    def advance(self) -> None:
        """A page is over."""

    def skip(self) -> None:
        """A page was read by an earlier run."""

    def observer(self, work: str) -> Observer:
        """Give the observer of `work`, a page's name and its backend's."""
        return Observer()


class Listener(Progress):
    """Says what is read, and the share that is over."""

    def __init__(self, say: Callable[[str, float], None]) -> None:
        self._say = say
        self._count, self._over = 1, 0

    def start(self, count: int) -> None:
        self._count = max(count, 1)

    def advance(self) -> None:
        self._over += 1

    def observer(self, work: str) -> Observer:
        words = f"page {self._over + 1:,} of {self._count:,}, {work}"
        share = self._over / self._count
        return _StageName(lambda stage: self._say(f"{words} {stage}", share))


class ProgressBar(Progress):
    """A bar on a terminal, one for all pages; silent elsewhere."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _PagesPerSecond(Column(no_wrap=True)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("pages", total=None)
        self._left = 0

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, count: int) -> None:
        self._left = count
        self._bar.update(self._task, total=count)

    def advance(self) -> None:
        self._bar.advance(self._task)

    def skip(self) -> None:
        """One less to do, so that the speed is that of the work."""
        self._left -= 1
        self._bar.update(self._task, total=self._left)

    def observer(self, work: str) -> Observer:
        return _StageName(lambda stage: self._bar.update(self._task, description=f"{work} {stage}"))


class _PagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g} pages/s", style="progress.data.speed")


class _StageName(Observer):
    """Shows which stage of which page runs."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def preparing(self, words: str) -> None:
        self._show(words)

    def stage_started(self, stage: Stage) -> None:
        self._show(stage)
