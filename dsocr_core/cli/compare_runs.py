"""Recorded runs: `compare RUN`, `compare A_RUN B_RUN`, `compare RUN --again`, reports of any comparison."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.answers import written
from dsocr_core.cli.read import Compared
from dsocr_core.settings import Settings, SettingsError, settings_of

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.page.documents import Pages
    from dsocr_core.review.review import Review
    from dsocr_core.runs.history import History
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.results import Readings
    from dsocr_core.trace.why.run import Answer

_RUN_DOCUMENT = "run.json"
_MOST_TOGETHER = 256
_HOW = ("engine", "checkpoint", "device", "dtype", "attention", "rotary")
"""Settings of the second reading that win over the run's where they are on the command line."""
_WHERE = ("vendor", "history", "tolerance", "clean_pages", "draft", "a", "b")
"""Settings that are the command line's."""
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
    from dsocr_core.runs.storage import Store

    return Store(name).read(_RUN_DOCUMENT) is not None


def compare_runs(
    chosen: CompareOptions, location: str, names: Sequence[str], explain: Explain | None = None,
    found: Compared | None = None,
) -> Compared:  # fmt: skip
    """Compare recorded runs as the Review page does; write the reports that were asked for.

    `location` is the history of a run named by its id. A page that a reviewer's latest verdict calls "wrong"
    fails too. Runs of pages that were just compared add to what was `found`. Raises DsocrError.
    """
    # DuckDB and pandas are loaded after the command line is known to be good.
    from dsocr_core.review.document import document
    from dsocr_core.review.html import html_report
    from dsocr_core.review.junit import junit_report
    from dsocr_core.review.review import open_review
    from dsocr_core.runs.history import SEED_LOCATION, History

    with ExitStack() as stack:
        locations, ids = zip(*(location_and_id(name, location, stack) for name in names), strict=True)
        others = [other for other in (*locations[1:], SEED_LOCATION) if other != locations[0]]
        history = stack.enter_context(History(locations[0], *others))
        for run_id, where in zip(ids, locations, strict=True):
            _require(history, run_id, where)
        review = open_review(history, ids[0], ids[-1], chosen.backend_a, chosen.backend_b)
        answer = explain(review) if explain else None
        if answer:
            review = review.explained(answer.causes)
        found = found or _listed(document(review))
        if answer and found.explain:
            found.explain(answer.causes)
        reports = ((chosen.html, html_report), (chosen.junit, junit_report))
        lines = [written(file, report(review)) for file, report in reports if file]
        return replace(found, lines=[*found.lines, *lines], why=answer)


def _require(history: History, run_id: str, location: str) -> None:
    """Raises CompareError for a run that is damaged or not there."""
    if why := history.damaged().get(run_id):
        raise CompareError(f"run {run_id} is damaged ({why}); see: dsocr history check")
    if run_id not in history:
        raise CompareError(
            f"'{run_id}' is no file or folder, and the history at {location} has no run of that name; "
            "see: dsocr history list"
        )


def location_and_id(name: str, location: str, stack: ExitStack) -> tuple[str, str]:
    """Find the history that a run lies in, and its id; an output is taken into a history of its own."""
    if is_output(name):
        from dsocr_core.base.paths import Temporary
        from dsocr_core.runs.importers.own_run import take_sharded_run

        folder = Path(stack.enter_context(Temporary("compare")))
        return str(folder), take_sharded_run(name, folder)
    if (Path(name) / _RUN_DOCUMENT).is_file():
        directory = Path(name).resolve()
        return str(directory.parent.parent), directory.name
    return location, name


def _listed(values: dict[str, Any]) -> Compared:
    """The review's document, as it is printed."""
    from dsocr_core.read.report import PARITY_WORDS, SHOWN, parity_table

    rows = [row for row in values["pages"] if "absent" not in row["kinds"]]  # counted by the headline
    more = f"... and {len(rows) - SHOWN} more, none of them worse; --json has every page"
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


# --- a run that is read again ----------------------------------------------------------------------


class Recorded(NamedTuple):
    """A recorded run to read again, as many pages together as they were: alone they round differently."""

    backend: str | None
    pages: Pages
    settings: Settings
    batch: int


def recorded_run(
    location: str, run: str, backend: str | None, images: Sequence[str], given: Settings, typed: str
) -> Recorded:
    """Find what a run of the history read with `backend`; `images` are where its pages are now, by name.

    Raises DsocrError.
    """
    from dsocr_core.runs.history import SEED_LOCATION, History
    from dsocr_core.runs.results import readings

    with History(location, SEED_LOCATION) as history:
        _require(history, run, location)
        record = history.record(run)
        read = readings(history, run, with_steps=False)
    there = [name for _, name in read.requests]
    first = next((name for name in (*record.backends, *there) if name in there), None)
    if backend is not None and backend not in there:
        listed = ", ".join(sorted({str(name) for name in there}))
        raise DsocrError(f"run {run} has no backend '{backend}'; it has {listed}")
    settings, chosen = _settings(record, given, typed), backend or first
    return Recorded(chosen, _pages(read, chosen, images, settings), settings, batch_of(read, chosen))


def batch_of(read: Readings, backend: str | None) -> int:
    """Give the number of pages that the run read together, as most of its results say."""
    results = (result for (_, of), result in read.results.items() if of == backend)
    found = Counter(result.environment.get("batch", "1") for result in results).most_common(1)
    number = found[0][0] if found else ""
    return max(1, min(int(number[:9]), _MOST_TOGETHER)) if number.isascii() and number.isdigit() else 1


def _settings(record: RunRecord, given: Settings, typed: str) -> Settings:
    """The run's settings, with those of the command line that say how to read. Raises DsocrError."""
    if record.source != "dsocr" or not record.settings:
        raise DsocrError(f"run {record.id} does not say how it was read: give its pages to compare")
    try:
        recorded = settings_of(record.settings)
    except DsocrError as error:
        raise DsocrError(f"run {record.id}: {error}") from error
    typed_options, usual = {word.partition("=")[0] for word in shlex.split(typed)}, Settings()
    changed = {name for name in Settings.__dataclass_fields__ if getattr(given, name) != getattr(usual, name)}
    if others := sorted(changed - {*_HOW, *_WHERE}):
        option = others[0].replace("_", "-")
        raise SettingsError(f"--{option} is not for --again: the pages are read as run {record.id} asked")
    chosen = {name for name in _HOW if name in changed or f"--{name}" in typed_options}
    how = {name: getattr(given, name) for name in chosen}
    if "checkpoint" not in how and (PROJECT_ROOT / recorded.checkpoint).exists():
        how["checkpoint"] = str(PROJECT_ROOT / recorded.checkpoint)
    a = given.a or (None if "engine" in how else recorded.a)
    where = {name: getattr(given, name) for name in _WHERE} | {"a": a, "b": None}
    return replace(recorded, **where, **how)


def _pages(read: Readings, backend: str | None, images: Sequence[str], settings: Settings) -> Pages:
    """The run's pages, where they are now. Raises DsocrError."""
    from dsocr_core.page.documents import Pages, expand
    from dsocr_core.review.pictures import source_of

    requests = {page: request for (page, of), request in read.requests.items() if of == backend}
    if not images:
        sources = {page: source_of(request.image, request.file) for page, request in requests.items()}
        return Pages.recorded(sources)
    found = expand(images, None, None, settings.pdf_dpi, settings.max_pixels, recursive=True).only(requests)
    if not len(found):
        name = next(iter(requests))
        raise DsocrError(f"none of the given files is called like a page of the run, as '{name}'")
    return found
