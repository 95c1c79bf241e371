"""The tab Text: both sides block beside block, or raw."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.reading.differences import loose_text
from dsocr_core.reading.parity import comparable
from dsocr_core.reading.text_diff import Runs
from pages.widgets.components.document import Aligned, show_aligned
from pages.widgets.pair import sheets
from pages.widgets.pair.shown import Pairing, Shown, compared
from pages.widgets.pair.tables import STATE_WORDS
from pages.widgets.pair.viewer import clicked
from pages.widgets.shared.labels import side_label
from pages.widgets.shared.messages import plain


def draw(shown: Shown) -> None:
    """Draw the texts; where there are two, first what differs."""
    if not shown.results:
        st.caption("Neither side has a text on record.")
        return
    views = [*(["Difference"] if shown.report else []), "Raw"]
    view = st.segmented_control(
        "View", views, default=views[0], required=True,
        key=f"{shown.prefix}text view", persist_state="session", label_visibility="collapsed",
    )  # fmt: skip
    if view == "Difference":
        _difference(shown)
        return
    for column, (side, result) in zip(st.columns(len(shown.results)), shown.results.items(), strict=True):
        column.caption(plain(side_label(side, result.backend)))
        column.code(sheets.text_of(result, shown.sheet)[0], language=None, wrap_lines=True, height=480)


# --- block beside block ---------------------------------------------------------------------------


def _difference(shown: Shown) -> None:
    lines = list(_lines(shown))
    differing = [line for line in lines if line.left != line.right]
    head, switch = st.columns([4, 1], vertical_alignment="center")
    head.caption(
        f"{len(differing)} of {plural(len(lines), 'block')} differ; letters that only one side has are "
        "underlined. A click selects the box."
    )
    only = switch.toggle("Only what differs", key=f"{shown.prefix}only", persist_state="session")
    key = f"{shown.prefix}aligned"
    show_aligned(
        key, (shown.names["a"], shown.names["b"]), differing if only else lines, shown.selected,
        lambda: shown.select(clicked(key)),
    )  # fmt: skip


def _lines(shown: Shown) -> Iterator[Aligned]:
    """The text outside of blocks where it differs, then block beside block in A's order."""
    a, b, report = shown.comparison.a, shown.comparison.b, shown.report
    assert a is not None and b is not None and report is not None
    sides = (a, b) if a.request.together else comparable(a, b)
    loose = [loose_text(*sheets.text_of(side, shown.sheet)) for side in sides]
    outside = loose[0] != loose[1]
    if outside:
        yield Aligned("outside of blocks", *compared(*loose))
    if not shown.rows and not outside:
        text: Runs = [(sheets.text_of(a, shown.sheet)[0], "same")]
        yield Aligned("no blocks", text, text)
    for number, row in enumerate(shown.rows if report.pairs else ()):
        if row.a is not None and row.b is not None:
            yield Aligned(_caption(row), *compared(row.a.text, row.b.text), box=number)
        else:
            left: Runs | None = [(row.a.text, "letter")] if row.a is not None else None
            right: Runs | None = [(row.b.text, "letter")] if row.b is not None else None
            yield Aligned(_caption(row), left, right, box=number)


def _caption(row: Pairing) -> str:
    box = row.a or row.b
    assert box is not None
    labels = dict.fromkeys(box.label for box in (row.a, row.b) if box)
    named = f"#{box.index + 1} {' → '.join(labels)}"
    return named if row.state in ("matched", "single") else f"{named}, {STATE_WORDS[row.state]}"
