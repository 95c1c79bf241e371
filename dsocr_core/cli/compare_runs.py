"""`compare RUN` and `compare A_RUN B_RUN`: recorded runs instead of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dsocr_core.cli.read import tell
from dsocr_core.console import Name, page_table, verdict_text
from dsocr_core.errors import DsocrError
from dsocr_core.outside.visible import json_line
from dsocr_core.words import duration

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.history.store import History

SHOWN = 100
"""Pages that people are shown; a longer table is of no use to them."""

_COLUMNS = ("Page", "Verdict", "Blocks", "Shift", "CER", "Tokens", "Differences")
_RUN_DOCUMENT = "run.json"


class CompareError(DsocrError):
    """A command that names neither pages nor runs, or both; says what to give."""


_ONLY_RUNS = ("backend_a", "backend_b", "html", "junit", "truth")
_ONLY_PAGES = ("pages", "out", "save")


def names_runs(chosen: CompareOptions) -> bool:
    """Whether `compare` was given recorded runs: run directories, or names that are no files.

    Raises CompareError for a mixture, for more than two runs, and for options of the other use.
    """
    names: Sequence[str] = chosen.images
    runs = [name for name in names if _may_be_run(name)]
    if runs and len(runs) < len(names):
        file = next(name for name in names if name not in runs)
        raise CompareError(
            f"compare: '{file}' is a file or folder of pages and '{runs[0]}' is none that exists; give "
            "pages, or one or two runs of the history"
        )
    other, use = (_ONLY_PAGES, "pages") if runs else (_ONLY_RUNS, "recorded runs")
    wrong = [name for name in other if getattr(chosen, name)]
    if wrong:
        given = "recorded runs" if runs else "pages"
        raise CompareError(
            f"compare: --{wrong[0].replace('_', '-')} is for {use}, and {given} are given; leave it out"
        )
    if len(runs) > 2:
        raise CompareError(f"compare: {len(runs)} runs are given; give one that has both backends, or two")
    return bool(runs)


def _may_be_run(name: str) -> bool:
    """A run's directory, or what does not exist and has no page's suffix: then both are missing."""
    path = Path(name)
    if (path / _RUN_DOCUMENT).is_file():
        return True
    from dsocr_core.inputs.documents import IMAGE_SUFFIXES, PDF_SUFFIX

    has_suffix = path.suffix.lower() in IMAGE_SUFFIXES | {PDF_SUFFIX}
    return not path.exists() and not has_suffix


def compare_runs(chosen: CompareOptions, location: str, console: Console) -> int:
    """Compare recorded runs and print what the Review page shows; returns the exit code.

    `location` is the history where a run is named by its id. 1 when a page fails parity or a reviewer's
    latest verdict on it is "wrong". Raises DsocrError.
    """
    # DuckDB and pandas are loaded after the command line is known to be good.
    from dsocr_core.history.store import SEED_LOCATION, History
    from dsocr_core.review.accuracy import read_truth, sample_truth
    from dsocr_core.review.report import document, html_report, junit_report
    from dsocr_core.review.review import open_review

    locations, ids = zip(*(_location_and_id(name, location) for name in chosen.images), strict=True)
    others = [other for other in (*locations[1:], SEED_LOCATION) if other != locations[0]]
    with History(locations[0], also=others) as history:
        _check_ids(history, ids, locations)
        review = open_review(history, ids[0], ids[-1], chosen.backend_a, chosen.backend_b)
        truth = read_truth(Path(chosen.truth)) if chosen.truth else sample_truth()
        values = document(review, truth)
        if chosen.html:
            _write(chosen.html, html_report(review, truth))
        if chosen.junit:
            _write(chosen.junit, junit_report(review))
    written = [f"written to {file}" for file in (chosen.html, chosen.junit) if file]
    return tell(_Runs(values), chosen, console, written)


@dataclass(frozen=True)
class _Runs:
    """The review's document, as it is printed."""

    values: dict[str, Any]

    @property
    def failed(self) -> int:
        return int(self.values["failed"] or self.values["rejected"])

    def write_json(self, stream: TextIO) -> None:
        stream.write(json_line(self.values) + "\n")

    def print(self, console: Console) -> None:
        _print(self.values, console)


def _location_and_id(name: str, location: str) -> tuple[str, str]:
    """The history that a run lies in, and its id."""
    path = Path(name)
    if (path / _RUN_DOCUMENT).is_file():
        directory = path.resolve()
        return str(directory.parent.parent), directory.name
    return location, name


def _check_ids(history: History, ids: Sequence[str], locations: Sequence[str]) -> None:
    for run_id, location in zip(ids, locations, strict=True):
        if why := history.damaged().get(run_id):
            raise CompareError(f"compare: run {run_id} is damaged ({why}); see: dsocr history check")
        if run_id not in history:
            raise CompareError(
                f"compare: '{run_id}' is no file or folder, and the history at {location} has no run of that "
                "name; see: dsocr history list"
            )


def _write(file: str, content: str) -> None:
    try:
        Path(file).write_text(content, encoding="utf-8")
    except OSError as error:
        raise CompareError(f"{file}: cannot be written ({error.strerror})") from error


# --- for people ---------------------------------------------------------------------------------


def _print(values: dict[str, Any], console: Console) -> None:
    from dsocr_core.review.page import KINDS

    table = page_table(*_COLUMNS, words="Differences")
    rows = [row for row in values["pages"] if "absent" not in row["kinds"]]  # the headline counts the others
    for row in rows[:SHOWN]:
        table.add_row(*_cells(row, KINDS))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN} more, none of them worse; --json has every page")
    if values["stages"]:
        console.print(_stages(values["stages"]))
    accuracy = values["accuracy"]
    for side in ("a", "b"):
        if accuracy[side]["pages"]:
            console.print(Text(_accuracy_words(values[side]["name"], accuracy[side])))
    console.print(
        "Worst first. Blocks: A / B. Shift: the largest of matched boxes. Tokens: the first that differs."
    )
    console.print(Text(f"A: {values['a']['name']}   B, the reference: {values['b']['name']}"))
    console.print(Text(values["headline"]))
    words = ", ".join(f"{word} {count}" for word, count in values["verdicts"].items() if word != "reviewers")
    console.print(f"verdicts: {words}")
    console.print(f"{values['passed']} passed, {values['failed']} failed")


def _cells(row: dict[str, Any], kinds: dict[Any, str]) -> list[RenderableType]:
    boxes = row["boxes"]
    shift, rate = row["max_coordinate_difference_percent"], row["character_error_rate"]
    tokens = "-" if row["tokens_equal"] is None else "equal" if row["tokens_equal"] else _divergence(row)
    return [
        Name(row["image"]),
        verdict_text(row["verdict"]),
        "-" if boxes["a"] is None else f"{boxes['a']} / {boxes['b']}",
        "-" if shift is None else f"{shift:.3g} %",
        "-" if rate is None else f"{rate:.1%}",
        tokens,
        Text(", ".join(kinds[kind] for kind in row["kinds"])),
    ]


def _divergence(row: dict[str, Any]) -> str:
    first = row["first_divergence"]
    margins = row["margins"]
    tie = "" if margins is None else ", a tie" if margins["tie"] else ", no tie"
    return "differ" if first is None else f"from {first}{tie}"


def _stages(stages: Sequence[dict[str, Any]]) -> Table:
    from dsocr_core.history.statistics import outcome_words
    from dsocr_core.review.document import ratio_words

    table = page_table("Stage", "n", "A, median", "B, median", "B is", "Outcome")
    for row in stages:
        table.add_row(
            row["stage"],
            str(row["n"]),
            duration(row["median_a"]),
            duration(row["median_b"]),
            ratio_words(row["ratio"]) if row["verdict"] in ("faster", "slower") else "-",
            outcome_words(row["verdict"]),
        )
    return table


def _accuracy_words(name: str, found: dict[str, Any]) -> str:
    def figure(value: float | None, form: str) -> str:
        return "not measured" if value is None else format(value, form)

    return (
        f"accuracy of {name} on {found['pages']} pages: box F1 {figure(found['box_f1'], '.3f')}, "
        f"CER {figure(found['character_error_rate'], '.1%')}, "
        f"reading order {figure(found['order_distance'], '.3f')}"
    )
