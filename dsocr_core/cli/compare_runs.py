"""Recorded runs compared: `compare RUN`, `compare A_RUN B_RUN`, and the reports of any comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.text import Text

from dsocr_core.base.console import Name, PageTable
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import duration, speed_ratio
from dsocr_core.base.sanitise import json_line
from dsocr_core.cli.read import Compared

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.review.review import Review
    from dsocr_core.trace.why.run import Answer

_RUN_DOCUMENT = "run.json"


class CompareError(DsocrError):
    """A comparison that cannot be made; says what to give."""


def may_be_run(name: str) -> bool:
    """Tell whether a name is a run's directory, or does not exist and has no page's suffix."""
    path = Path(name)
    if (path / _RUN_DOCUMENT).is_file() or ("://" in name and is_output(name)):
        return True
    from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX

    has_suffix = path.suffix.lower() in IMAGE_SUFFIXES | {PDF_SUFFIX}
    return not path.exists() and not has_suffix


def is_output(name: str) -> bool:
    """Tell whether an output of `run --cluster` is there. Raises StorageError."""
    if "://" not in name:
        return (Path(name) / _RUN_DOCUMENT).is_file() and (Path(name) / "plan").is_dir()
    from dsocr_core.runs.store import Store

    return Store(name).read(_RUN_DOCUMENT) is not None


Explain = Callable[["Review"], "Answer | None"]
"""Finds why pages of a review differ."""


def compare_runs(
    chosen: CompareOptions, location: str, names: Sequence[str], explain: Explain | None = None
) -> Compared:
    """Compare recorded runs as the Review page does; `location` is the history of a run named by its id.

    A page that a reviewer's latest verdict calls "wrong" fails too. Raises DsocrError.
    """
    from dsocr_core.review.document import document

    with _review(chosen, location, names) as review:
        answer = explain and explain(review)
        review = review.explained(answer.causes) if answer else review
        return Compared(_Runs(document(review)), lines=_reports(chosen, review), why=answer)


def reported(
    found: Compared, chosen: CompareOptions, location: str, explain: Explain | None = None
) -> Compared:
    """Write the reports that were asked for, of a recorded run with both sides. Raises DsocrError."""
    with _review(chosen, location, found.runs) as review:
        answer = explain and explain(review)
        if answer:
            review = review.explained(answer.causes)
            found.report.explain(answer.causes)
        return replace(found, lines=[*found.lines, *_reports(chosen, review)], why=answer)


@contextlib.contextmanager
def _review(chosen: CompareOptions, location: str, names: Sequence[str]) -> Iterator[Review]:
    # DuckDB and pandas are loaded after the command line is known to be good.
    from dsocr_core.review.review import open_review
    from dsocr_core.runs.history import SEED_LOCATION, History

    with ExitStack() as stack:
        locations, ids = zip(*(location_and_id(name, location, stack) for name in names), strict=True)
        others = [other for other in (*locations[1:], SEED_LOCATION) if other != locations[0]]
        history = stack.enter_context(History(locations[0], *others))
        for run_id, where in zip(ids, locations, strict=True):
            if why := history.damaged().get(run_id):
                raise CompareError(f"compare: run {run_id} is damaged ({why}); see: dsocr history check")
            if run_id not in history:
                raise CompareError(
                    f"compare: '{run_id}' is no file or folder, and the history at {where} has no run of "
                    "that name; see: dsocr history list"
                )
        yield open_review(history, ids[0], ids[-1], chosen.backend_a, chosen.backend_b)


def location_and_id(name: str, location: str, stack: ExitStack) -> tuple[str, str]:
    """Find the history that a run lies in, and its id; an output is taken into a history of its own."""
    path = Path(name)
    if is_output(name):
        from dsocr_core.base.temporary import Temporary
        from dsocr_core.runs.importers.own_run import take_sharded_run

        folder = Path(stack.enter_context(Temporary("compare")))
        return str(folder), take_sharded_run(name, folder)
    if (path / _RUN_DOCUMENT).is_file():
        directory = path.resolve()
        return str(directory.parent.parent), directory.name
    return location, name


def _reports(chosen: CompareOptions, review: Review) -> list[str]:
    from dsocr_core.review.html import html_report
    from dsocr_core.review.junit import junit_report

    lines = []
    if chosen.html:
        lines.append(written(chosen.html, html_report(review)))
    if chosen.junit:
        lines.append(written(chosen.junit, junit_report(review)))
    return lines


def written(file: str, content: str) -> str:
    """Write a report; returns the line that says so. Raises CompareError."""
    try:
        Path(file).write_text(content, encoding="utf-8")
    except OSError as error:
        raise CompareError(f"{file}: cannot be written ({error.strerror})") from error
    return f"written to {file}"


@dataclass(frozen=True)
class _Runs:
    """The review's document, as it is printed."""

    values: dict[str, Any]

    @property
    def failed(self) -> int:
        return int(self.values["failed"])

    def write_json(self, stream: TextIO) -> None:
        stream.write(json_line(self.values) + "\n")

    def print(self, console: Console) -> None:
        _print(self.values, console)

    def explain(self, causes: Mapping[str, str]) -> None:
        """A review has them in its values."""


# --- for people ---------------------------------------------------------------------------------


def _print(values: dict[str, Any], console: Console) -> None:
    from dsocr_core.read.report import PARITY_WORDS, SHOWN, CompareReport, parity_cells

    table = PageTable("Page", *CompareReport.columns, words="Why")
    rows = [row for row in values["pages"] if "absent" not in row["kinds"]]  # the headline counts the others
    for row in rows[:SHOWN]:
        table.add_row(Name(row["image"]), *parity_cells(row))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN} more, none of them worse; --json has every page")
    if values["stages"]:
        console.print(_stages(values["stages"]))
    console.print(f"Worst first. {PARITY_WORDS}")
    console.print(Text(f"A: {values['a']['name']}   B, the reference: {values['b']['name']}"))
    console.print(Text(values["headline"]))
    words = ", ".join(f"{word} {count}" for word, count in values["verdicts"].items() if word != "reviewers")
    console.print(f"verdicts: {words}")
    console.print(f"{values['passed']} passed, {values['failed']} failed")


def _stages(stages: Sequence[dict[str, Any]]) -> PageTable:
    from dsocr_core.runs.statistics import outcome_words

    table = PageTable("Stage", "Pages", "Runs", "A, median", "B, median", "B is", "Outcome")
    for row in stages:
        table.add_row(
            row["stage"],
            str(row["pages"]),
            f"{row['runs_a']} / {row['runs_b']}",
            duration(row["median_a"]),
            duration(row["median_b"]),
            speed_ratio(row["ratio"], 1.0) if row["verdict"] in ("faster", "slower") else "-",
            outcome_words(row["verdict"]),
        )
    return table
