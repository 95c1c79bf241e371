"""The report of a review as one HTML file: no script, no network, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import duration, share, speed_ratio
from dsocr_core.reading.parity_records import KINDS, VERDICT_WORDS
from dsocr_core.reading.text_diff import Runs, text_difference
from dsocr_core.review.document import document
from dsocr_core.review.pictures import overlay
from dsocr_core.review.review import Review
from dsocr_core.runs.statistics import outcome_words

WORST = 20  # pages that the report shows with pictures
PICTURE_SIDE = 800  # pixels of a picture's longer side
PICTURES_LIMIT = 1024 * 1024
"""Bytes of all pictures together, so that the report stays below 2 MB; later pages go without."""
ROWS, DIFFERENCES, BLOCKS, TEXT = 1500, 30, 6, 1500
"""Pages in the table, differences (or comments) and texts of a page, characters of a text."""
CONTEXT = 60  # characters before and after what differs in a long text
_HERE = Path(__file__).parent


def html_report(review: Review, worst: int = WORST, words: str = "") -> str:
    """One HTML file that needs no network and no script; all text of models is escaped.

    `words` are its reader's own, and come first.
    Its Content-Security-Policy forbids both, so that even a text that got through could do nothing.
    """
    values = document(review)
    shown = _worst(review, worst)
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"figure": _figure, "percent": share, "ms": duration, "runs": _runs}
    page = environment.get_template("report.html").render(
        report=values, own_words=words, shown=shown, kinds=KINDS, words=VERDICT_WORDS, style=Markup(style),
        rows=[row for row in values["pages"] if "absent" not in row["kinds"]][:ROWS], style_hash=digest,
        limits={"differences": DIFFERENCES, "blocks": BLOCKS}, sides={"a": review.a.name, "b": review.b.name},
        speed_ratio=speed_ratio, outcome_words=outcome_words,
    )  # fmt: skip
    # Half surrogates, which model text may hold, cannot be written to a file.
    return page.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _worst(review: Review, count: int) -> list[dict[str, Any]]:
    """The worst pages, each with its picture as a data URI, a note on it, reviews and comments."""
    left = PICTURES_LIMIT
    given, comments = review.verdicts.current(), review.verdicts.comments()
    shown: list[dict[str, Any]] = []
    pages = [page for page in review.pages if page.changed or page.fails or page.name in comments]
    for page in pages[:count]:
        uri, note = None, ""
        said = comments.get(page.name, [])[:DIFFERENCES]
        try:
            picture = review.picture(page.name)
            jpeg = overlay(picture, page, PICTURE_SIDE)
            note = "" if picture else "The page's picture is not on record here: boxes on an empty sheet."
            if picture and picture.with_boxes:
                note = "Only the picture with one side's boxes is left."
            if len(jpeg) <= left:
                uri, left = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}", left - len(jpeg)
            else:
                note = "No room for its picture."
        except DsocrError as error:
            note = str(error)
        reviews = given.get(page.name, {})
        shown.append({"page": page, "picture": uri, "note": note, "reviews": reviews, "comments": said})
    return shown


# --- figures ------------------------------------------------------------------------------------


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}"


def _runs(texts: tuple[str, str]) -> list[Runs]:
    """Both texts of a difference as runs, with "…" where what both have is cut."""
    return [_cut(side) for side in text_difference(*(text[:TEXT] for text in texts))]


def _cut(runs: Runs) -> Runs:
    shown: Runs = []
    for at, (text, change) in enumerate(runs):
        if change == "same" and len(text) > 2 * CONTEXT:
            head, tail = text[:CONTEXT] * (at > 0), text[-CONTEXT:] * (at < len(runs) - 1)
            text = f"{head}…{tail}"
        shown.append((text, change))
    return shown
