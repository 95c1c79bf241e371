"""Reports of the figures: one document for JSON, rows for CSV, a table for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.accuracy import EVALUATOR
from dsocr_core.accuracy.ground_truth import GroundTruth, TruthError
from dsocr_core.accuracy.measuring import Side
from dsocr_core.accuracy.scores import PageScore, Total
from dsocr_core.base.console import Name
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes
from dsocr_core.base.visible import visible
from dsocr_core.reading.spreadsheet import csv_cell

_TITLES = {
    "text_edit": "Text", "order_edit": "Order", "formula_edit": "Formula", "table_teds": "TEDS",
    "table_structure": "Structure",
}  # fmt: skip
FIGURES = tuple(_TITLES)
NOT_COMPUTED = {
    "formula_cdm": "not computed: it renders LaTeX; use the benchmark's own container",
    "overall": "not computed: ((1 - text edit) * 100 + table TEDS + formula CDM) / 3 needs formula CDM",
}
SHOWN = 40
"""Pages that people are shown, those with most text edits first; CSV and JSON have all."""
_LETTERS = ("a", "b")
_MOST_NAMED = 3


def document(
    truth_file: Path, truth: GroundTruth, sides: Sequence[Side], official: Total | None = None
) -> dict[str, Any]:
    """All figures as JSON-ready values; null is "nothing to count" or "no text"."""
    return {
        "evaluator": EVALUATOR,
        "ground_truth": str(truth_file),
        "release": truth.release,
        **NOT_COMPUTED,
        "official": None if official is None else _figures(official),
        "sides": {
            letter: {
                "label": side.label,
                **_figures(side.total),
                "pages": side.total.pages,
                "pages_without_text": dict(side.missing),
                "texts_of_no_page": list(side.not_asked_for),
                "files_not_taken": list(side.left),
            }
            for letter, side in zip(_LETTERS, sides, strict=False)
        },
        "pages": [
            {
                "image": page.image,
                **{
                    letter: None if (score := side.scores.get(page.image)) is None else _page(score)
                    for letter, side in zip(_LETTERS, sides, strict=False)
                },
            }
            for page in truth.pages
        ],
    }


def _figures(values: PageScore | Total) -> dict[str, float | None]:
    return {name: getattr(values, name) for name in FIGURES}


def _page(score: PageScore) -> dict[str, Any]:
    return {**_figures(score), "tables": score.tables, "notes": list(score.notes)}


def write_csv(file: Path, truth: GroundTruth, sides: Sequence[Side]) -> None:
    """A row a page and side; an empty field is nothing to count, or no text. Raises DsocrError."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("image", "side", "label", *FIGURES, "tables", "notes"))
    for page in truth.pages:
        for letter, side in zip(_LETTERS, sides, strict=False):
            score = side.scores.get(page.image)
            figures = _figures(score) if score else dict.fromkeys(FIGURES)
            notes = "; ".join(score.notes) if score else side.missing.get(page.image, "")
            tables = score.tables if score else ""
            rows.writerow(
                (
                    csv_cell(page.image),
                    letter,
                    csv_cell(side.label),
                    *figures.values(),
                    tables,
                    csv_cell(notes),
                )
            )
    try:
        file.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise DsocrError(f"{file}: cannot be written ({error.strerror})") from error


def print_report(
    console: Console, truth: GroundTruth, sides: Sequence[Side], official: Total | None = None
) -> None:
    """The totals, and the pages with most text edits."""
    shown = [name for name in FIGURES if any(getattr(side.total, name) is not None for side in sides)]
    titles = [_TITLES[name] for name in shown]
    totals = _table("Side", "Pages", "No text", *titles)
    for letter, side in zip(_LETTERS, sides, strict=False):
        whole = side.total
        counts = (str(whole.pages), str(len(side.missing)))
        totals.add_row(Name(f"{letter.upper()} {visible(side.label)}"), *counts, *_words(whole, shown))
    if official is not None:
        totals.add_row(Name("OmniDocBench's own"), "–", "–", *_words(official, shown))
    console.print(totals)
    pages = _table("Page, A / B" if len(sides) > 1 else "Page", *titles)
    order = sorted(truth.pages, key=lambda page: -max(_edits(side, page.image) for side in sides))
    for page in order[:SHOWN]:
        scores = [side.scores.get(page.image) for side in sides]
        figures = zip(
            *(_words(score, shown) if score else ["no text"] * len(shown) for score in scores), strict=True
        )
        pages.add_row(Name(visible(page.image)), *(" / ".join(each) for each in figures))
    console.print(pages)
    if len(order) > SHOWN:
        _say(
            console, f"{SHOWN} of {len(order):,} pages, those with most text edits; --csv and --json have all"
        )
    for side in sides:
        _say_left(console, side)
    _say(console, f"Ground truth: {truth.release}. Rules: {EVALUATOR}.")
    _say(
        console,
        "Text, order, formula: edit distance, 0 is best. TEDS: 1 is best. A dash: nothing of it on the page.",
    )
    _say(console, "Formula CDM and Overall are not computed: CDM renders LaTeX (docs/accuracy.md).")


def _edits(side: Side, image: str) -> float:
    score = side.scores.get(image)
    return -1.0 if score is None or score.text_edit is None else score.text_edit


def _say_left(console: Console, side: Side) -> None:
    for what, names in (
        ("pages have no text and are left out, as the benchmark does", [*side.missing]),
        ("texts belong to no page of the ground truth", side.not_asked_for),
        ("files are not taken", side.left),
    ):
        if names:
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            _say(console, f"{side.label}: {len(names):,} {what}: {', '.join(names[:_MOST_NAMED])}{more}")
    notes = [f"{image}: {note}" for image, score in side.scores.items() for note in score.notes]
    for note in notes[:_MOST_NAMED]:
        _say(console, f"{side.label}: {note}")


def _say(console: Console, words: str) -> None:
    console.print(Text(words))


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(columns[0])  # names give way to figures: see Name
    for column in columns[1:]:
        table.add_column(column, no_wrap=True, justify="right")
    return table


def _words(values: PageScore | Total, names: Sequence[str]) -> list[str]:
    return ["–" if (value := getattr(values, name)) is None else f"{value:.3f}" for name in names]


_LIMIT = 16 * 1024 * 1024
_PLACES = {
    "text_edit": (("text_block", "all", "Edit_dist", "ALL_page_avg"),),
    "order_edit": (("reading_order", "all", "Edit_dist", "ALL_page_avg"),),
    "formula_edit": (("display_formula", "all", "Edit_dist", "ALL_page_avg"),),
    "table_teds": (("table", "page", "TEDS", "ALL"), ("table", "all", "TEDS", "all")),
    "table_structure": (
        ("table", "page", "TEDS_structure_only", "ALL"), ("table", "all", "TEDS_structure_only", "all"),
    ),
}  # fmt: skip
"""Place of a figure: the mean over pages, else that over tables."""


def read_result(file: Path) -> Total:
    """The means of an evaluation; of how many pages it does not say. Raises TruthError."""
    try:
        data = parse_json(read_bytes(file, _LIMIT, follow_links=True), any_number=True)
    except Refused as error:
        raise TruthError(f"{file}: {error}; give a metric_result.json of OmniDocBench") from error
    found = {
        name: next((value for place in places if (value := _at(data, place)) is not None), None)
        for name, places in _PLACES.items()
    }
    if all(value is None for value in found.values()):
        raise TruthError(f"{file}: no figure of OmniDocBench in it; give its metric_result.json")
    return Total(0, **found)


def _at(data: Any, place: tuple[str, ...]) -> float | None:
    for name in place:
        data = data.get(name) if isinstance(data, dict) else None
    is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
    return float(data) if is_number and 0 <= data <= 1 else None
