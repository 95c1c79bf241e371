"""`compare`: pages, recorded runs or outputs of a cluster, by what is named."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from dsocr_core.base.paths import Temporary
from dsocr_core.base.specs import BackendChoice
from dsocr_core.cli import compare_runs as recorded
from dsocr_core.cli.answers import Answer, Compared
from dsocr_core.cli.compare_runs import CompareError
from dsocr_core.cli.options import FROM_ZERO
from dsocr_core.cli.run import PageOptions, of_this_machine, read
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings, history_location, settings_against

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(PageOptions):
    """Pages to read with two backends, or results that are there.

    Args:
        images: images, folders or PDF files; or one or two recorded runs or outputs of a cluster
        a: what reads the pages as A (default: the engine); its own settings follow as --a.KEY VALUE
        b: what reads them as B (default: the vendor); several are each compared with A; --b.KEY VALUE follow
        again: read the pages of a recorded run again as A; B is that run
        why: find the cause on that number of pages that differ, by trying up to 60 settings of A on each
        html: write the report: worst pages with pictures, figures, settings
        junit: write JUnit XML
        spans: spans of each backend that the table shows
        backend_a: of runs: the backend of A_RUN
        backend_b: of runs: the backend of B_RUN
    """

    a: BackendChoice | None = None
    b: tuple[BackendChoice, ...] = ()
    again: bool = False
    why: int = 0
    html: str | None = None
    junit: str | None = None
    spans: Annotated[int, FROM_ZERO] = 3
    backend_a: str | None = None
    backend_b: str | None = None


PAGES, RUNS, AGAIN = "pages", "recorded runs", "a recorded run that is read again"
"""Sources of the pairs of a comparison."""
_OPTIONS_OF = {
    "backend_a": (RUNS,),
    "backend_b": (RUNS, AGAIN),
    "pages": (PAGES,),
    "pages_together": (PAGES,),
    "out": (PAGES, AGAIN),
    "save": (PAGES, AGAIN),
    "why": (PAGES, AGAIN, RUNS),
}
"""By option the sources that it goes with, the usual one first."""


def compare(chosen: CompareOptions, settings: Settings, *, typed: str) -> Answer:
    """Read pages with two backends and report their parity: compare IMAGE ... Read a recorded run again:
    compare RUN --again. Or compare results that are there, without a model: compare RUN (its two backends),
    compare A_RUN B_RUN (ids, directories of runs, or complete outputs of run --cluster).
    """
    settings = replace(settings, a=chosen.a, b=next(iter(chosen.b), None))
    source, reviewed = _source(chosen), bool(chosen.html or chosen.junit or chosen.why)
    if reviewed and len(chosen.b) > 1:
        raise CompareError("compare: reports and --why are of one A and one B: give --b once")
    with ExitStack() as stack:
        location, explain = history_location(settings), None
        record_in = settings.history if chosen.save else None
        if record_in is None and (source is AGAIN or (reviewed and source is not RUNS)):
            record_in = stack.enter_context(Temporary("compare"))  # a report is that of a recorded run
        if source in (RUNS, AGAIN):
            found = _compare_runs(settings, chosen, location, record_in, stack, typed)
        else:
            found, explain = _compare_pages(settings, chosen, record_in, typed)
        if found.runs and reviewed and source not in (RUNS, AGAIN):
            location = history_location(replace(settings, history=str(record_in)))
            reports = recorded.compare_runs(chosen, location, found.runs, explain)
            lines = [*reports.lines, *found.lines]  # causes are in the listing of the recorded run
            found = replace(reports if explain else found, lines=lines, recorded=found.recorded)
    return (found if chosen.save else replace(found, recorded=())).answer()


def _source(chosen: CompareOptions) -> str:
    """Decide by what is named. Raises CompareError for a mixture, and for options of another source."""
    names = chosen.images
    runs = [name for name in names if recorded.may_be_run(name)]
    mixed = len(runs) not in (0, len(names))
    if chosen.again:
        source, well = AGAIN, len(runs) == len(names) == 1
        way_out = "--again needs one run of the history, or its directory"
    else:
        source, well = (RUNS if runs else PAGES), bool(names) and not mixed and len(runs) < 3
        absent = f"'{runs[0]}' is no image, PDF or folder of them: " if mixed else ""
        way_out = f"{absent}give pages, or one or two runs of the history"
    if not well:
        raise CompareError(f"compare: {way_out}")
    for option, sources in _OPTIONS_OF.items():
        if getattr(chosen, option) and source not in sources:
            word = option.replace("_", "-")
            raise CompareError(f"compare: --{word} is for {sources[0]}, and {source} are given; leave it out")
    return source


def _compare_pages(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> tuple[Compared, recorded.Explain | None]:
    """Read pages; with what finds causes where that is asked for. Raises DsocrError, Cancelled."""
    plan = chosen.plan("compare", typed, sides=SIDES, spans=chosen.spans)
    if chosen.pages_together is None:
        settings = of_this_machine(settings)
    if chosen.why:
        recorded.check_why(settings)
    both = settings.for_comparison()
    pairs = settings_against(settings, chosen.b) if len(chosen.b) > 1 else [both]
    found = read(pairs, plan, record_in, f"it is in {plan.directory}")
    if not chosen.why:
        return found, None
    return found, partial(
        recorded.explain_worst, pages=plan.look_up(settings), settings=both, most=chosen.why
    )


def _compare_runs(
    settings: Settings, chosen: CompareOptions, location: str, record_in: str | None, stack: ExitStack,
    typed: str,
) -> Compared:  # fmt: skip
    """Compare recorded runs; `--again` reads the pages of one again as A. Raises DsocrError, Cancelled."""
    if not (chosen.why or chosen.again):
        return recorded.compare_runs(chosen, location, chosen.images)
    named, run = chosen.backend_b if chosen.again else chosen.backend_a, chosen.images[0]
    found_in, run_id = recorded.location_and_id(run, location, stack)
    backend, pages, used, batch = recorded.recorded_run(found_in, run_id, named, settings, typed)
    explain = None
    if chosen.why:
        recorded.check_why(used)
        explain = partial(recorded.explain_worst, pages=pages, settings=used, most=chosen.why)
    if not chosen.again:
        return recorded.compare_runs(chosen, location, chosen.images, explain)
    directory = Path(chosen.out or new_run_directory("again"))
    plan = RunPlan((), directory, slots=batch, command=typed, found=pages)
    found = read([used], plan, record_in, f"it is in {directory}")
    if not found.runs:
        raise CompareError("compare: no page was read again: there is nothing to compare")
    made = Path(history_location(replace(settings, history=str(record_in))), "runs", found.runs[0])
    compared = recorded.compare_runs(replace(chosen, backend_b=backend), location, (str(made), run), explain)
    return replace(compared, lines=[*compared.lines, *found.lines], recorded=found.recorded)
