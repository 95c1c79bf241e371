"""`trace`: the first tensor that differs between two backends on one page, or between two dumps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import RenderableType
from rich.status import Status
from rich.text import Text

from dsocr_core.base.console import FAILED, OK, SafeConsole
from dsocr_core.base.formatting import plural, shortened
from dsocr_core.cli.answers import Answer, cancelled_by_interrupt
from dsocr_core.cli.options import FROM_ZERO
from dsocr_core.reading.records import CancelToken
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.trace.run import TracePlan

Way = Literal["eager", "fast", "float32", "vendor"]


def trace(
    settings: Annotated[Settings, "engine"],
    page: tuple[Path, ...],
    *,
    a: Way = "eager",
    b: Way = "vendor",
    steps: Annotated[int | None, FROM_ZERO] = None,
    out: Path | None = None,
    only: str = "",
    save: bool = False,
    typed: str,
) -> Answer:
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
    dumps = len(page) == 2 and all(path.is_dir() for path in page)
    if save and not settings.history:
        raise SettingsError("--save has nowhere to save to: give --history a path")
    if (dumps and (out or save)) or (out and len(page) > 1):
        raise SettingsError("--save goes with pages, --out with one page: two directories are only compared")
    from dsocr_core.trace.run import USUAL_STEPS, TracePlan, compare_directories

    blocks = tuple(name.strip() for name in only.split(",") if name.strip())
    plan = TracePlan(a, b, USUAL_STEPS if steps is None else steps, blocks, out)
    summaries, saved = [], []
    with cancelled_by_interrupt() as cancel:
        if dumps:
            summaries.append(compare_directories(page[0], page[1], blocks, cancel))
        for path in () if dumps else page:
            summary, run = _trace_page(path, settings, plan, steps is None, typed if save else "", cancel)
            summaries.append(summary)
            saved += [f"saved as run {run}"] if run else []
    documents = [{"page": summary.page, **summary.document()} for summary in summaries]
    document = {"pages": documents} if len(summaries) > 1 else summaries[0].document()
    shown = [each for summary in summaries for each in _shown(summary)]
    return Answer(document, (*saved, *shown), OK if all(each.equal for each in summaries) else FAILED)


def _trace_page(
    page: Path, settings: Settings, plan: TracePlan, to_divergence: bool, command: str, cancel: CancelToken
) -> tuple[TraceSummary, str | None]:
    """The summary, and the run that it is saved as where there is a `command` line of that run."""
    from dsocr_core.trace.run import divergence_steps, trace_page

    if page.suffix.lower() == ".pdf":
        raise SettingsError(f"{page}: trace takes one image; give a picture of the PDF's page")
    request = settings.request(page)
    with Status("loading", console=SafeConsole(stderr=True)) as status:

        def wait(holder: str) -> None:
            status.update(f"waiting for {holder}")

        def show(side: str, call: int, calls: int) -> None:
            status.update(f"{side}: pass {call + 1} of {calls}")

        if to_divergence:
            status.update("reading with both, to find where they diverge")
            plan = replace(plan, steps=divergence_steps(settings, request, plan, cancel, wait))
        summary = trace_page(settings, request, plan, show, cancel, wait)
    if not command:
        return summary, None
    from dsocr_core.trace.recorder import record_trace

    return summary, record_trace(settings, request, plan, summary, command)


def _shown(summary: TraceSummary) -> list[RenderableType]:
    """The sentence, the causes and the counts."""
    alone = (("A", summary.only_a), ("B", summary.only_b))
    return [
        Text(f"{summary.page}: {summary.sentence}", style="bold"),
        *(f"also: {cause.words}" for cause in summary.causes[1:]),
        f"{summary.differing:,} of {summary.compared:,} outputs differ; A {summary.a}, B {summary.b}, "
        f"{plural(summary.steps, 'decode step')}",
        *(f"only {side} has {shortened(', '.join(names), 200)}" for side, names in alone if names),
    ]
