"""Recorded runs: `compare RUN`, `compare A_RUN B_RUN`, `compare RUN --again`; reports and causes (`--why`) of
any comparison.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.status import Status
from rich.text import Text

from dsocr_core.base.console import SafeConsole
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.specs import ENGINES
from dsocr_core.cli.answers import Compared, cancelled_by_interrupt, written
from dsocr_core.engine.source import MOST_TOGETHER
from dsocr_core.settings import Settings, SettingsError, settings_of

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.page.documents import Page, Pages
    from dsocr_core.review.review import Review
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.results import Readings
    from dsocr_core.trace.why.match import SideB
    from dsocr_core.trace.why.run import Answer

_RUN_DOCUMENT = "run.json"
_PAGES_AT_ONCE = 2000
"""Pages of two outputs that are compared at a time."""
_HOW = ("engine", "checkpoint", "device", "dtype", "attention", "rotary")
"""Settings of the second reading that win over the run's where they are on the command line."""
_WHERE = ("vendor", "history", "tolerance", "clean_pages", "draft", "a", "b")
"""Settings given on the command line."""
Explain = Callable[["Review"], "Answer | None"]
"""Finds why pages of a review differ."""


class CompareError(DsocrError):
    """A comparison that cannot be made; says what to give."""


def may_be_run(name: str) -> bool:
    """Tell whether a name is a run's directory, or does not exist and has no page's suffix."""
    path = Path(name)
    if (path / _RUN_DOCUMENT).is_file() or ("://" in name and is_output(name)):
        return True
    from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX

    return not path.exists() and path.suffix.lower() not in IMAGE_SUFFIXES | {PDF_SUFFIX}


def is_output(name: str) -> bool:
    """Tell whether an output of `run --cluster` is there. Raises StorageError."""
    if "://" not in name:
        return (Path(name) / _RUN_DOCUMENT).is_file() and (Path(name) / "done").is_dir()
    from dsocr_core.runs.storage import FileStore

    return FileStore(name).read(_RUN_DOCUMENT) is not None


def compare_runs(
    chosen: CompareOptions, location: str, names: Sequence[str], explain: Explain | None = None
) -> Compared:
    """Compare recorded runs as the Review page does; write the reports that were asked for.

    `location` is the history of a run named by its id. A page that a reviewer's latest verdict calls "wrong"
    fails too. Raises DsocrError.
    """
    # DuckDB and pandas are loaded after the command line is known to be good.
    from dsocr_core.review.document import document, merged
    from dsocr_core.review.html import html_report
    from dsocr_core.review.junit import junit_report
    from dsocr_core.review.review import open_review
    from dsocr_core.runs.history import SEED_LOCATION, History

    if len(names) == 2 and all(map(is_output, names)) and not (chosen.html or chosen.junit or explain):
        with SafeConsole(stderr=True).status("comparing") as status:
            return _listed(merged(map(document, _reviews_of_outputs(chosen, names, status))))
    with ExitStack() as stack:
        locations, ids = zip(*(location_and_id(name, location, stack) for name in names), strict=True)
        others = [other for other in (*locations[1:], SEED_LOCATION) if other != locations[0]]
        history = stack.enter_context(History(locations[0], *others))
        review = open_review(history, ids[0], ids[-1], chosen.backend_a, chosen.backend_b)
        answer = explain(review) if explain else None
        if answer:
            review = review.explained(answer.causes)
        reports = ((chosen.html, html_report), (chosen.junit, junit_report))
        lines = [written(file, report(review)) for file, report in reports if file]
        causes, why = ([*_causes(answer)], {"why": answer.document()}) if answer else ([], {})
        return replace(_listed(document(review) | why), lines=[*causes, *lines])


def location_and_id(name: str, location: str, stack: ExitStack) -> tuple[str, str]:
    """History and id of a run; one outside of a history is copied into a history of its own."""
    directory, output = Path(name).resolve(), is_output(name)
    if not output and not (directory / _RUN_DOCUMENT).is_file():
        return location, name
    if not output and directory.parent.name == "runs":
        return str(directory.parent.parent), directory.name
    from dsocr_core.base.paths import Temporary
    from dsocr_core.runs.importers.imported import RunFiles
    from dsocr_core.runs.importers.own_run import read_own_run, read_sharded_run
    from dsocr_core.runs.run_directory import RunDirectory

    folder = Path(stack.enter_context(Temporary("compare")))
    [run] = [read_sharded_run(name)] if output else read_own_run(RunFiles(Path(name)))
    run.write(RunDirectory.create(folder, run.record))
    return str(folder), run.record.id


def _reviews_of_outputs(chosen: CompareOptions, names: Sequence[str], status: Status) -> Iterator[Review]:
    """Reviews of two outputs of a cluster, some shards at a time where both have the same: any number fits.

    Raises DsocrError.
    """
    from dsocr_core.base.paths import Temporary
    from dsocr_core.review.review import open_review
    from dsocr_core.runs.history import History
    from dsocr_core.runs.importers.own_run import read_sharded_run, run_of_shards
    from dsocr_core.runs.run_directory import RunDirectory
    from dsocr_core.runs.sharded import ShardedRun

    outputs = [(run, run.complete()) for run in map(ShardedRun, names)]
    shards = [[marker.shard for marker in markers] for _, markers in outputs]
    same, most = shards[0] == shards[1], max(marker.pages for marker in outputs[0][1])
    step = max(1, _PAGES_AT_ONCE // most) if same else len(shards[0])
    for first in range(0, len(shards[0]), step):
        status.update(f"comparing shard {first + 1:,} of {len(shards[0]):,}")
        if same:
            part = [run_of_shards(run, markers[first : first + step]) for run, markers in outputs]
        else:
            part = [read_sharded_run(name) for name in names]
        with Temporary("compare") as folder, ExitStack() as stack:
            for run in part:
                run.write(RunDirectory.create(folder, run.record))
            history = stack.enter_context(History(folder, cache=Path(folder)))
            ids = [run.record.id for run in part]
            yield open_review(history, ids[0], ids[-1], chosen.backend_a, chosen.backend_b)


def _listed(values: dict[str, Any]) -> Compared:
    """The review's document, as it is printed."""
    from dsocr_core.read.report import PARITY_WORDS, SHOWN, parity_table

    rows = [row for row in values["pages"] if "absent" not in row["kinds"]]  # counted by the headline
    more = f"... and {len(rows) - SHOWN} more in --json, none of them worse"
    verdicts = (f"{word} {count}" for word, count in values["verdicts"].items() if word != "reviewers")
    shown = [
        parity_table((row["image"], row) for row in rows[:SHOWN]),
        *([more] if len(rows) > SHOWN else []),
        f"Worst first. {PARITY_WORDS}",
        f"A: {values['a']['name']}   B, the reference: {values['b']['name']}",
        values["headline"],
        f"verdicts: {', '.join(verdicts)}",
        f"{values['passed']} passed, {values['failed']} failed",
    ]
    return Compared(values["failed"], values, shown)


# --- why pages differ -----------------------------------------------------------------------------


def check_why(settings: Settings) -> None:
    """Raises SettingsError where A is none of our engines, which try the causes."""
    if settings.spec("a").kind not in ENGINES:
        raise SettingsError(
            f"--why tries other settings on A, and A is {settings.backend('a')}: give --a eager or fast"
        )


def explain_worst(review: Review, pages: Pages, settings: Settings, most: int) -> Answer | None:
    """Find why B's text differs on the `most` worst pages that differ; None where none does.

    `pages` are those of the review and `settings` A's. Raises DsocrError, Cancelled.
    """
    from dsocr_core.runs.results import readings
    from dsocr_core.trace.why.match import SideB
    from dsocr_core.trace.why.run import why

    other = [page for page in review.pages if page.a and page.b and page.a.text_raw != page.b.text_raw]
    names = {page.names[0] or "": page.names[1] or "" for page in other[:most]}
    if not names:
        return None
    read = readings(review.history, review.b.record.id, list(names.values())).results

    def other_of(page: Page) -> SideB:
        return SideB.of(read[names[page.source], review.b.backend], review.b.name)

    with SafeConsole(stderr=True).status("loading") as status, cancelled_by_interrupt() as cancel:
        return why(
            settings.of_side("a"),
            pages.only(names),
            other_of,
            progress=lambda words, run, runs: status.update(f"run {run} of at most {runs}: {words}"),
            cancel=cancel,
            on_wait=lambda holder: status.update(f"waiting for {holder}"),
        )


def _causes(answer: Answer) -> Iterator[RenderableType]:
    """Trials of each page, then the conclusion. Only --json has what both sides used."""
    for page in answer.pages:
        finding = page.finding
        for trial in finding.trials:
            match = trial.match
            agrees = "exactly" if match.exact else f"{match.agreed} of {match.of} characters"
            yield f"tried: {trial.words}: agrees {agrees}, CER {match.error_rate:.1%}, {trial.seconds:.1f} s"
        yield from (f"excluded: {each.hypothesis.words}: {each.why}" for each in finding.exclusions)
        if finding.also:
            yield f"this page cannot tell it from: {'; '.join(finding.also)}"
        if finding.sentence:
            yield f"{page.name}: {finding.sentence}"
    yield Text(answer.sentence, style="bold")


# --- a run that is read again ----------------------------------------------------------------------


def recorded_run(
    location: str, run: str, backend: str | None, given: Settings, typed: str
) -> tuple[str | None, Pages, Settings, int]:
    """Find what to read again: the backend of a recorded run, its pages, the settings, and how many pages it
    read together, as alone they round differently. Raises DsocrError.
    """
    from dsocr_core.page.documents import Pages
    from dsocr_core.review.pictures import source_of
    from dsocr_core.runs.history import SEED_LOCATION, History
    from dsocr_core.runs.results import readings

    with History(location, SEED_LOCATION) as history:
        record = history.record(run)
        read = readings(history, run, with_steps=False)
    there = [name for _, name in read.requests]
    if backend is not None and backend not in there:
        listed = ", ".join(sorted({str(name) for name in there}))
        raise DsocrError(f"run {run} has no backend '{backend}'; it has {listed}")
    backend = backend or next((name for name in (*record.backends, *there) if name in there), None)
    requests = {page: request for (page, of), request in read.requests.items() if of == backend}
    sources = {page: source_of(request.image, request.file) for page, request in requests.items()}
    return backend, Pages.recorded(sources), _settings(record, given, typed), batch_of(read, backend)


def batch_of(read: Readings, backend: str | None) -> int:
    """Give the number of pages that the run read together, as most of its results say."""
    results = (result for (_, of), result in read.results.items() if of == backend)
    found = Counter(result.environment.get("batch", "1") for result in results).most_common(1)
    number = found[0][0] if found else ""
    return max(1, min(int(number[:9]), MOST_TOGETHER)) if number.isascii() and number.isdigit() else 1


def _settings(record: RunRecord, given: Settings, typed: str) -> Settings:
    """The run's settings, with those of the command line that say how to read. Raises DsocrError."""
    if record.source != "dsocr" or not record.settings:
        raise DsocrError(f"run {record.id} does not say how it was read: give its pages to compare")
    try:
        recorded = settings_of(record.settings)
    except DsocrError as error:
        raise DsocrError(f"run {record.id}: {error}") from error
    words, usual = {word.partition("=")[0] for word in shlex.split(typed)}, Settings()
    changed = {name for name in Settings.__dataclass_fields__ if getattr(given, name) != getattr(usual, name)}
    if others := sorted(changed - {*_HOW, *_WHERE}):
        option = others[0].replace("_", "-")
        raise SettingsError(f"--{option} is not for --again: the pages are read as run {record.id} asked")
    how = {name: getattr(given, name) for name in _HOW if name in changed or f"--{name}" in words}
    if "checkpoint" not in how and (PROJECT_ROOT / recorded.checkpoint).exists():
        how["checkpoint"] = str(PROJECT_ROOT / recorded.checkpoint)
    a = given.a or (None if "engine" in how else recorded.a)
    where = {name: getattr(given, name) for name in _WHERE} | {"a": a, "b": None}
    return replace(recorded, **where, **how)
