"""`compare`: pairs of pages, recorded runs, folders of texts or outputs of a cluster, by what is named."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import name_text
from dsocr_core.base.specs import BackendChoice
from dsocr_core.cli.answers import Answer
from dsocr_core.cli.compare_runs import (
    CompareError,
    Explain,
    compare_runs,
    is_output,
    location_and_id,
    may_be_run,
    recorded_run,
)
from dsocr_core.cli.options import FROM_ZERO
from dsocr_core.cli.over_cluster import compare_outputs
from dsocr_core.cli.read import Compared, PageOptions, read
from dsocr_core.cli.run import of_this_machine
from dsocr_core.cli.why import check_why, explain_worst
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.reading.records import SIDES, OcrResult, Side
from dsocr_core.settings import Settings, history_location, settings_against

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(PageOptions):
    """Pages to read with two backends, or results that are there.

    Args:
        images: images, folders or PDF files; or one or two recorded runs, folders of texts, outputs
        a: what reads the pages as A (default: the engine); its own settings follow as --a.KEY VALUE
        b: what reads them as B (default: the vendor); several are each compared with A; --b.KEY VALUE follow
        again: read the pages of a recorded run again as A; B is that run. Files after it are its pages now
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

    @property
    def reviewed(self) -> bool:
        """Tell whether something is asked for that a review of a recorded run gives."""
        return bool(self.html or self.junit or self.why)


PAGES, RUNS, AGAIN = "pages", "recorded runs", "a recorded run that is read again"
FOLDERS, OUTPUTS = "folders of texts", "outputs of a cluster"
"""Sources of the pairs of a comparison."""
_FOLDER = "folder:"
_OPTIONS_OF = {
    "backend_a": (RUNS,),
    "backend_b": (RUNS, AGAIN),
    "pages": (PAGES,),
    "pages_together": (PAGES,),
    "out": (PAGES, AGAIN),
    "save": (PAGES, AGAIN, OUTPUTS, FOLDERS),
    "why": (PAGES, AGAIN, RUNS),
}
"""By option the sources that it goes with, the usual one first."""


def compare(chosen: CompareOptions, settings: Settings, *, typed: str) -> Answer:
    """Read pages with two backends and report their parity: compare IMAGE ... Read a recorded run again:
    compare RUN --again. Or compare results that are there, without a model: compare RUN (its two backends),
    compare A_RUN B_RUN (ids, or directories of runs), compare folder:A folder:B (texts of programs) or
    compare A_OUT B_OUT (outputs of run --cluster).
    """
    settings = replace(settings, a=chosen.a, b=next(iter(chosen.b), None))
    source = _source(chosen)
    if chosen.reviewed and len(chosen.b) > 1:
        raise CompareError("compare: reports and --why are of one A and one B: give --b once")
    with ExitStack() as stack:
        location, explain = history_location(settings), None
        record_in = settings.history if chosen.save else None
        if record_in is None and (source is AGAIN or (chosen.reviewed and source is not RUNS)):
            record_in = stack.enter_context(Temporary("compare"))  # a report is that of a recorded run
        if source in (RUNS, AGAIN):
            found = _compare_runs(settings, chosen, location, record_in, stack, typed)
        elif source is PAGES:
            found, explain = _compare_pages(settings, chosen, record_in, typed)
        else:
            make = compare_outputs if source is OUTPUTS else _compare_folders
            found = make(settings, chosen, record_in, typed)
        if found.runs and chosen.reviewed and source not in (RUNS, AGAIN):
            location = history_location(replace(settings, history=str(record_in)))
            found = compare_runs(chosen, location, found.runs, explain, found)
    return (found if chosen.save else replace(found, recorded=())).answer()


def _source(chosen: CompareOptions) -> str:
    """Decide by what is named. Raises CompareError for a mixture, and for options of another source."""
    names, problem = chosen.images, ""
    folders = [name for name in names if name.startswith(_FOLDER)]
    runs = [name for name in names if not folders and may_be_run(name)]
    outputs = [name for name in runs if is_output(name)]
    others = [name for name in names if name not in runs]
    source = RUNS if runs else PAGES
    if chosen.again:
        source = AGAIN
        if not runs or names[0] != runs[0]:
            problem = "--again needs a run of the history, or its directory, before all files"
    elif folders:
        source = FOLDERS
        if len(folders) < len(names) or len(names) != 2:
            problem = f"give two folders of texts, or pages and --b {folders[0]}"
    elif outputs and not (len(outputs) == 1 and len(runs) == len(names) == 2):  # else one is read as a run
        source = OUTPUTS
        if not len(outputs) == len(names) == 2:
            other = next((f"'{name}' is none" for name in names if name not in outputs), "")
            problem = (
                f"'{outputs[0]}' is an output of run --cluster, and {other or f'{len(names)} are given'}: "
                "give two of them, one and a run, or pages"
            )
    elif not names:
        problem = "nothing is given: name pages, or one or two runs of the history"
    elif runs and others:
        problem = (
            f"'{others[0]}' is a file or folder of pages and '{runs[0]}' is none that exists; give pages, or "
            "one or two runs of the history"
        )
    elif len(runs) > 2:
        problem = f"{len(runs)} runs are given; give one that has both backends, or two"
    for option, sources in _OPTIONS_OF.items():
        if not problem and getattr(chosen, option) and source not in sources:
            word = option.replace("_", "-")
            problem = f"--{word} is for {sources[0]}, and {source} are given; leave it out"
    if problem:
        raise CompareError(f"compare: {problem}")
    return source


def _compare_pages(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> tuple[Compared, Explain | None]:
    """Pages that are read, and what finds causes where that is asked for. Raises DsocrError, Cancelled."""
    plan = chosen.plan("compare", typed, sides=SIDES, spans=chosen.spans)
    if chosen.pages_together is None:
        settings = of_this_machine(settings)
    if chosen.why:
        check_why(settings)
    all_settings = [settings.for_comparison()]
    if len(chosen.b) > 1:
        all_settings = settings_against(settings, chosen.b)
    elif all_settings[0].attention_note:
        log.warning("%s", all_settings[0].attention_note)
    found = read(all_settings, plan, record_in, f"it is in {plan.directory}")
    if not chosen.why:
        return found, None
    return found, partial(
        explain_worst, pages=chosen.expanded(settings), settings=all_settings[0], most=chosen.why
    )


def _compare_runs(
    settings: Settings, chosen: CompareOptions, location: str, record_in: str | None, stack: ExitStack,
    typed: str,
) -> Compared:  # fmt: skip
    """Compare recorded runs; `--again` reads the pages of one again as A. Raises DsocrError, Cancelled."""
    if not (chosen.why or chosen.again):
        return compare_runs(chosen, location, chosen.images)
    run, *images = chosen.images
    backend, images = (chosen.backend_b, images) if chosen.again else (chosen.backend_a, [])
    recorded = recorded_run(*location_and_id(run, location, stack), backend, images, settings, typed)
    explain = None
    if chosen.why:
        check_why(recorded.settings)
        explain = partial(explain_worst, pages=recorded.pages, settings=recorded.settings, most=chosen.why)
    if not chosen.again:
        return compare_runs(chosen, location, chosen.images, explain)
    directory = Path(chosen.out or new_run_directory("again"))
    plan = RunPlan((), directory, slots=recorded.batch, command=typed, found=recorded.pages)
    found = read([recorded.settings], plan, record_in, f"it is in {directory}")
    if not found.runs:
        raise CompareError("compare: no page was read again: there is nothing to compare")
    made = Path(history_location(replace(settings, history=str(record_in))), "runs", found.runs[0])
    pair = replace(chosen, backend_b=recorded.backend)
    compared = compare_runs(pair, location, (str(made), run), explain)
    return replace(compared, lines=[*compared.lines, *found.lines], recorded=found.recorded)


def _compare_folders(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> Compared:
    """Texts of the same names; a name that one folder lacks cannot be compared. Raises DsocrError."""
    from dsocr_core.backends.folder import read_texts, text_result
    from dsocr_core.page.documents import natural_key
    from dsocr_core.read.report import report_of
    from dsocr_core.reading.parity import Comparison
    from dsocr_core.runs.record import Recording
    from dsocr_core.runs.texts import Prediction, without_suffix

    settings = replace(settings, a=chosen.images[0], b=chosen.images[1], history=record_in or "")
    texts: dict[str, dict[Side, list[Prediction]]] = defaultdict(lambda: {side: [] for side in SIDES})
    for side, folder in zip(SIDES, chosen.images, strict=True):
        for each in read_texts(folder.removeprefix(_FOLDER)).predictions:
            texts[without_suffix(each.name)][side].append(each)
    report = report_of(settings.side_names, chosen.spans)
    recorder = Recording(settings, typed)
    with recorder if record_in is not None else nullcontext():
        for name in sorted(texts, key=natural_key):
            request, errors = settings.request(Path(name), name), dict[Side, str]()
            results: dict[Side, OcrResult] = {}
            for side, of_name in texts[name].items():
                if len(of_name) == 1:
                    source = {"folder": name_text(of_name[0].file)}
                    results[side] = text_result(settings.backend(side), request, (0, 0), of_name[0], source)
                else:
                    errors[side] = f"has {len(of_name) or 'no'} text{'s' * bool(of_name)} of that name"
            a, b = (results.get(side) for side in SIDES)
            comparison = Comparison(request, a, b, errors, tolerance=settings.tolerance)
            report.take(name, [comparison])
            if record_in is not None:
                recorder.add(name, comparison)
    runs = [recorder.id] if recorder.id else []
    return Compared.of(report, runs, [], [f"recorded as run {run}" for run in runs])
