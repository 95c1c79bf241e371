"""`trace`: the first tensor that differs between two backends on one page, or between two dumps."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from rich.table import Table

from dsocr_core.base.console import FAILED, OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.reading.records import CancelToken
from dsocr_core.reading.trace_curve import BlockError, block_errors, percent, shortened, steps_shown
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.trace.run import TracePlan

Way = Literal["eager", "fast", "float32", "vendor"]
_SHOWN_ROUTERS = 8


def trace(
    settings: Annotated[Settings, "engine"],
    page: tuple[Path, ...],
    *,
    a: Way = "eager",
    b: Way = "vendor",
    steps: Annotated[int | None, 0] = None,
    out: Path | None = None,
    only: str | None = None,
    save: bool = False,
    json: bool = False,
    console: Console,
    typed: str,
) -> int:
    """Find the first tensor that differs: two backends on a page, both with A's tokens. Or two dumps: trace
    DIR_A DIR_B. Exit code 0: equal, 1: different, 2: bad usage.

    Args:
        page: images; or the directories of two dumps
        a: side A; float32 is the oracle
        b: side B, fed with A's tokens
        steps: decode steps after the prefill; unless given, up to the first token that differs, or 8
        out: write the tensors to DIR/a and DIR/b
        only: blocks to compare, like clip or sam.block0,decoder.layer1
        save: record the summary as a run of the history
    """
    if save and not settings.history:
        raise SettingsError("--save has nowhere to save to: give --history a path")
    blocks = _split(only)
    with cancelled_by_interrupt() as cancel:
        if len(page) == 2 and all(path.is_dir() for path in page):
            for name, given in (("out", out), ("save", save)):
                if given:
                    raise SettingsError(f"--{name} goes with a page: two directories are only compared")
            from dsocr_core.trace.run import compare_directories

            summaries = [compare_directories(page[0], page[1], blocks, cancel)]
        else:
            if out and len(page) > 1:
                raise SettingsError("--out takes one page: each would replace the one before")
            from dsocr_core.trace.run import USUAL_STEPS, TracePlan

            plan = TracePlan(a, b, USUAL_STEPS if steps is None else steps, blocks, out)
            summaries = []
            for path in page:
                summary, saved = _trace_page(path, settings, plan, steps is None, save and typed, cancel)
                summaries.append(summary)
                if saved and not json:
                    console.print(f"saved as run {saved}", markup=False)
    if json:
        several = {"pages": [{"page": summary.page, **summary.document()} for summary in summaries]}
        print_json(several if len(summaries) > 1 else summaries[0].document())
    else:
        for summary in summaries:
            if len(summaries) > 1:
                console.print(f"\n{summary.page}", markup=False, style="bold")
            print_summary(summary, console)
    return OK if all(summary.equal for summary in summaries) else FAILED


def _trace_page(
    page: Path,
    settings: Settings,
    plan: TracePlan,
    to_divergence: bool,
    save: str | bool,
    cancel: CancelToken,
) -> tuple[TraceSummary, str | None]:
    """The summary, and the run that it is saved as; `save` is the command line of that run."""
    from dsocr_core.trace.run import divergence_steps, trace_page

    if page.suffix.lower() == ".pdf":
        raise SettingsError(f"{page}: trace takes one image; give a picture of the PDF's page")
    request = settings.request(page)
    with _Progress() as progress:
        if to_divergence:
            progress.say("reading with both, to find where they diverge")
            plan = replace(plan, steps=divergence_steps(settings, request, plan, cancel, progress.wait))
        summary = trace_page(settings, request, plan, progress.tell, cancel, progress.wait)
    if not save:
        return summary, None
    from dsocr_core.trace.recorder import record_trace

    return summary, record_trace(settings, request, plan, summary, str(save))


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


class _Progress:
    """Line on the terminal's error stream that says what is done now."""

    def __init__(self) -> None:
        self._console = SafeConsole(stderr=True)
        self._status = self._console.status("loading")
        self._began = time.monotonic()

    def __enter__(self) -> _Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def say(self, words: str) -> None:
        self._status.update(words)

    def tell(self, side: str, call: int, calls: int) -> None:
        step = "prefill" if call == 0 else f"decode step {call} of {calls - 1}"
        self._status.update(f"{side}: {step}, {time.monotonic() - self._began:.0f} s")

    def wait(self, holder: str) -> None:
        self._status.update(f"waiting for {holder}")


# --- printing -------------------------------------------------------------------------------------


def print_summary(summary: TraceSummary, console: Console) -> None:
    """The sentence, the causes, and where something differs the curve by block."""
    console.print(summary.sentence, markup=False, style="bold")
    for cause in summary.causes[1:]:
        console.print(f"also: {cause.words}", markup=False)
    counted = f"{summary.differing:,} of {summary.compared:,} outputs differ"
    console.print(f"{counted}; A {summary.a}, B {summary.b}, {summary.steps} decode steps", markup=False)
    for side, names in (("A", summary.only_a), ("B", summary.only_b)):
        if names:
            console.print(f"only {side} has {shortened(names)}", markup=False)
    if summary.first is None:
        return
    steps = steps_shown(summary.steps)
    title = "RMS error over A's std in what a block takes and gives; share that differs and largest ULP"
    table = Table(title=title, title_justify="left", pad_edge=False)
    table.add_column("block")
    for column in ("takes", "gives", "differ", "ULP", *(f"step {step}" for step in steps[1:])):
        table.add_column(column, justify="right")
    for block, cells in block_errors(summary).items():
        first = cells.get(0)
        row = ["", "", "", ""] if first is None else _cells(first)
        table.add_row(block, *row, *(_error(cells.get(step)) for step in steps[1:]))
    console.print(table)
    if summary.routers:
        console.print("Tokens whose experts differ:", markup=False)
        for change in summary.routers[:_SHOWN_ROUTERS]:
            step = "prefill" if change.call == 0 else f"step {change.call}"
            of_tokens = f"{change.changed} of {change.tokens}, {change.ties} at a tie"
            console.print(f"  {change.name}, {step}: {of_tokens}", markup=False)
        if (more := len(summary.routers) - _SHOWN_ROUTERS) > 0:
            console.print(f"  and in {more} more layers and steps", markup=False)


def _cells(cell: BlockError) -> list[str]:
    ulp = "" if cell.max_ulp is None else f"{cell.max_ulp:,}"
    return [_figure(cell.carried), _error(cell), percent(cell.share), ulp]


def _error(cell: BlockError | None) -> str:
    if cell is None:
        return ""
    return _figure(cell.error) if cell.differing else "equal"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
