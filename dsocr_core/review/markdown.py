"""The report of a review as Markdown, for a pull request; all text of models and machines is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dsocr_core.base.words import NOT_MEASURED, duration, percent
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.review.accuracy import Truth
from dsocr_core.review.document import changed, document, ratio_words
from dsocr_core.review.html import DIFFERENCES, ROWS, WORST, block_changes
from dsocr_core.review.page import KINDS, PageReview
from dsocr_core.review.queue import page_fails
from dsocr_core.review.review import Review
from dsocr_core.runs.labels import short
from dsocr_core.runs.statistics import outcome_words

_SIGNS = re.compile(r"([\\`*_{}\[\]<>|#&!~$@])")
_MOST = 1000
"""Characters of one cell, line or item."""


def plain(text: object) -> str:
    """A stranger's text on one line of Markdown, as it stands: no mark-up, no end of a cell, no call."""
    return _SIGNS.sub(r"\\\1", short(str(text), _MOST)) if text is not None else ""


def markdown_report(review: Review, truth: Truth | None = None, words: str = "") -> str:
    """The HTML report without pictures; `words` are its reader's own, and come first."""
    values = document(review, truth)
    parity = ", ".join(f"{count} {VERDICT_WORDS[verdict]}" for verdict, count in values["parity"].items())
    counts = ", ".join(f"{word} {count}" for word, count in values["verdicts"].items() if word != "reviewers")
    lines = [f"# Parity review {plain(review.key)}", "", plain(values["headline"]), ""]
    lines += [*(each for line in words.splitlines() for each in (plain(line), "")),
              f"{parity}: {values['passed']} passed, {values['failed']} failed. {counts}.", ""]  # fmt: skip
    if finding := values["ties"]["finding"]:
        lines += [plain(finding), ""]
    for page in [page for page in review.pages if changed(page) or page_fails(page)][:WORST]:
        lines += [*_page(page, review), ""]
    lines += ["## Time per stage", "", *_stages(values["stages"]), "", "## All pages", ""]
    rows = [row for row in values["pages"] if "absent" not in row["kinds"]]
    lines += table(("Page", "Parity", "CER", "Differences", "Verdicts"), map(_row, rows[:ROWS]))
    lines += ["", f"{len(rows) - ROWS:,} more pages, none of them worse."] * (len(rows) > ROWS)
    differ = [row for row in values["settings"] if not row["equal"]]
    names = ("section", "name", "a", "b")
    lines += ["", "## Settings and environment that differ", ""]
    lines += table(("", "Name", "A", "B"), ([row[name] for name in names] for row in differ))
    lines += ["", f"{len(values['settings']) - len(differ)} of {len(values['settings'])} values are equal."]
    return "\n".join(lines).encode(errors="replace").decode() + "\n"


def _page(page: PageReview, review: Review) -> Iterator[str]:
    """One of the worst: values that changed come first."""
    yield f"## {plain(page.name)}: {VERDICT_WORDS[page.verdict]}"
    yield ""
    changes = [words for block in page.blocks if (words := block_changes(block))]
    found = [*changes, *(f"{KINDS[one.kind]}: {one.words}" for one in page.differences)]
    found += [f"Likely cause: {hint.words}" for hint in page.hints]
    yield from (f"- {plain(words)}" for words in found[:DIFFERENCES])
    if len(found) > DIFFERENCES:
        yield f"- {len(found) - DIFFERENCES} more"
    for reviewer, row in sorted(review.verdicts.current().get(page.name, {}).items()):
        said = "; ".join(part for part in (row.verdict, row.label, row.comment) if part)
        yield f"- **{plain(reviewer)}**: {plain(said)}"


def _stages(stages: Sequence[dict[str, Any]]) -> list[str]:
    if not stages:
        return ["No times that both sides measured."]
    heads = ("Stage", "n", "A, median", "B, median", "B is", "Outcome")
    return table(heads, (
        (row["stage"], row["n"], duration(row["median_a"]), duration(row["median_b"]),
         ratio_words(row["ratio"]) if row["verdict"] in ("faster", "slower") else "",
         outcome_words(row["verdict"])) for row in stages
    ))  # fmt: skip


def _row(row: dict[str, Any]) -> Sequence[object]:
    rate = row["character_error_rate"]
    words = NOT_MEASURED if rate is None else percent(100 * rate)
    return (row["image"], VERDICT_WORDS[row["verdict"]], words,
            ", ".join(KINDS[kind] for kind in row["kinds"]),
            ", ".join(f"{name}: {given['verdict']}" for name, given in row["reviews"].items()))  # fmt: skip


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Make the lines of a table."""
    lines = [f"| {' | '.join(map(plain, cells))} |" for cells in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]
