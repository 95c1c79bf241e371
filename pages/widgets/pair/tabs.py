"""The tabs under a pair: the differences, what explains them, and what went in and came out of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from types import MappingProxyType

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.models.stages import Stage
from dsocr_core.reading.input_parity import input_lines
from dsocr_core.reading.parity_records import NOT_KNOWN, SETTINGS, Divergence, InputLine
from dsocr_core.reading.records import SIDES, OcrResult
from pages.widgets.pair import layers
from pages.widgets.pair.shown import PairView, Results, sheet_text
from pages.widgets.pair.state import PairState
from pages.widgets.pair.viewer import clicked
from pages.widgets.shared import figure, table
from pages.widgets.shared.labels import side_label, stage_name
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

_STATUS = {
    "matched": "matched", "moved": "moved", "relabelled": "relabelled", "text": "text differs",
    "only_a": "only A", "only_b": "only B", "single": "not compared",
}  # fmt: skip
_CORNERS = "x1, y1, x2, y2 (px)"
BLOCKS = {
    "#": Column("#", width=45), "status": Column("status"), "label": Column("label"),
    "A text": Column("A reads"), "B text": Column("B reads"), "page": Column("the page says"),
    "IoU": Column("IoU", "%.3f"), "shift (%)": Column("shift (%)", "%.2f"),
    **{name: Column(name) for name in (f"A {_CORNERS}", f"B {_CORNERS}")},
}  # fmt: skip
CANDIDATES = {
    "side": Column("side"), "chosen": Column("chosen token"), "chosen logit": Column("its logit", "%.7g"),
    "runner-up": Column("runner-up"), "runner-up logit": Column("its logit", "%.7g"),
    "margin": Column("margin", "%.4g"),
}  # fmt: skip
TIMES = {
    "stage": Column("stage", stage_name, left=True, width=200), "A": Column("A", "ms"),
    "B": Column("B", "ms"), "ratio": Column("B/A", ""),
}  # fmt: skip
INPUTS = {"same": Column("", width=40), **{name: Column(name) for name in ("input", "A", "B")}}
_INPUTS_WORDS = {
    True: "All settings that affect the result are equal.",
    False: "The settings differ, so the outputs may differ.",
    None: "What went into the model is not known on both sides.",
}
_MARKS = "✓ equal, ✗ differs, – differs without effect, ? not known on a side."
_FEW = 12
"""Rows of a table that does not scroll."""


def draw(
    shown: PairView,
    state: PairState,
    commands: Mapping[str, str] = MappingProxyType({}),
    files: Callable[[], None] = lambda: None,
) -> None:
    """Draw them.

    `commands` find out more, by the words over them; `files` draws what can be taken away.
    """
    drawers = {
        "Differences": lambda: _differences(shown),
        "Cause": lambda: _cause(shown, commands),
        "Details": lambda: _details(shown, files),
    }
    figure.tabs(drawers, state)


# --- differences ----------------------------------------------------------------------------------


def _differences(shown: PairView) -> None:
    """Differences of the whole page, the blocks (all or those that differ), the first different token."""
    report = shown.report
    for item in report.differences if report else shown.comparison.differences:
        if not item.boxes_a and not item.boxes_b and item.kind not in SETTINGS:
            st.caption(plain(f"{item.sentence[:1].upper()}{item.sentence[1:]}"))
    for side, result in shown.results.items():
        for span in result.blocks:
            if span.malformed is not None:  # it began like a block
                words = f"{side.upper()}: {span.label[:80]} could not be read: {span.malformed}"
                st.caption(plain(words))
    count = len(shown.rows)
    if count:
        differ = f"{len(shown.differing)} of {plural(count, 'block')} differ"
        st.caption(f"{differ if shown.report else plural(count, 'block')}.")
    elif not shown.results:
        st.caption("Neither side has a result.")
    elif all(not result.boxes for result in shown.results.values()):
        st.caption("No boxes on this page. The prompt *Markdown with boxes* asks for them.")
    divergence = report.first_divergence if report else None
    if divergence is not None:
        _divergence(shown, divergence)
    if count:  # a table costs the browser as much as the rest of the page
        figure.opened(
            "Tables of blocks and tokens", f"{shown.prefix}tables", partial(_tables, shown, divergence)
        )


def _tables(shown: PairView, divergence: Divergence | None) -> None:
    """The blocks that differ, or all; a click selects the box. Their rows have numbers of their own."""
    key = f"{shown.prefix}blocks"
    every = st.toggle("All blocks", key=f"{shown.prefix}all blocks", persist_state="session")
    numbers = list(range(len(shown.rows))) if every or not shown.report else sorted(shown.differing)
    at = [numbers.index(shown.selected)] if shown.selected in numbers else []

    def select() -> None:
        row = clicked(key)
        shown.select(numbers[row] if row is not None and row < len(numbers) else None)

    if numbers:
        table.draw(
            block_table(shown, numbers), BLOCKS, "", _FEW, key=key, selection_mode="single-row",
            on_select=select, selection_default={"selection": {"rows": at}},
        )  # fmt: skip
    if divergence is not None and divergence.margins is not None:
        table.draw(candidates(divergence, shown.results.values()), CANDIDATES, "not recorded")


def block_table(shown: PairView, numbers: Collection[int] | None = None) -> pd.DataFrame:
    """A row a pair of blocks, numbered from one. `numbers` are those to show, all unless given."""
    rows = []
    for number in range(len(shown.rows)) if numbers is None else numbers:
        row = shown.rows[number]
        cells: dict[str, object] = {
            "#": number + 1, "status": _STATUS[row.state], "label": row.box.label, "IoU": row.iou,
            "shift (%)": row.shift_percent, "page": block.text if (block := shown.true_block(row)) else "",
        }  # fmt: skip
        for side in SIDES:
            letter, box = side.upper(), row.of(side)
            cells[f"{letter} {_CORNERS}"] = f"{box.x1}, {box.y1}, {box.x2}, {box.y2}" if box else ""
            cells[f"{letter} text"] = box.text if box else ""
        rows.append(cells)
    frame = pd.DataFrame(rows, columns=list(BLOCKS))
    return frame if shown.truth else frame.drop(columns="page")


def _divergence(shown: PairView, divergence: Divergence) -> None:
    """Show where the tokens diverge, and after which text."""
    counts = [len(result.token_ids or ()) for result in shown.results.values()]
    row = None if divergence.box_a is None else shown.row_of(divergence.box_a, None)
    where = " (before the first box)" if row is None else f" (box {(divergence.box_a or 0) + 1} of A)"
    where *= bool(shown.rows)
    of = " and ".join(f"{count:,}" for count in counts)
    why = (
        "one side had ended there"
        if divergence.index >= min(counts)
        else "the two best logits are not recorded"
    )
    why = divergence.margins.words if divergence.margins else why
    st.caption(f"First different token: {divergence.index:,} of {of}{where}; {why}. Text before it:")
    # No st.code: its colours are more of the client than the rest of the page.
    st.html(f"<pre class='dsocr-context'>{escape(divergence.context[-300:] or '(the start)')}</pre>")


def candidates(divergence: Divergence, results: Iterable[OcrResult]) -> pd.DataFrame:
    """A row a side: the token chosen where the tokens diverge and the runner-up, each with its logit."""
    texts = {
        token: text
        for result in results
        for token, text in zip(result.token_ids or (), result.token_texts, strict=False)
    }
    rows = []
    assert divergence.margins is not None
    for side, top in zip(SIDES, (divergence.margins.a, divergence.margins.b), strict=True):
        row: dict[str, object] = {"side": side.upper(), "margin": top.margin if top else None}
        for name, token, logit in (
            zip(("chosen", "runner-up"), top.ids, top.logits, strict=True) if top else ()
        ):
            row |= {name: f"{token} {repr(texts.get(token, ''))[1:-1]}".strip(), f"{name} logit": logit}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(CANDIDATES))


# --- cause ----------------------------------------------------------------------------------------


def _cause(shown: PairView, commands: Mapping[str, str]) -> None:
    """Draw the cause, the settings that differ, the first layer that differs."""
    report = shown.report
    if report is None:
        st.caption("Two results are needed. Run both sides.")
    elif not shown.causes:
        st.caption("Nothing to explain." if not shown.differing else "No cause is known.")
    for cause in shown.causes:
        likely = "" if cause.name == "reproduced" else "Likely: "
        st.markdown(f"- {likely}{plain(cause.words)}.")
    if report is not None and (unequal := [line for line in report.inputs if line.unequal]):
        st.caption("Settings that differ and affect the result:")
        table.draw(input_table(unequal), INPUTS)
    for words, command in commands.items():
        st.caption(words)
        st.code(command, language=None, wrap_lines=True)
    layers.draw(shown.comparison, f"{shown.prefix}layers")


# --- details --------------------------------------------------------------------------------------


def _details(shown: PairView, files: Callable[[], None]) -> None:
    """Times of each stage, what went into both models, the raw texts, what can be taken away."""
    times = stage_times(shown.results)
    words = "Time of each stage, one run of each side. Vision is part of prefill."
    st.caption(words if len(times) else "No times of this page are recorded.")
    if len(times):
        table.draw(times, TIMES, "–")
    if shown.report is not None:
        st.caption(f"{_INPUTS_WORDS[shown.report.input_parity]} {_MARKS}")
        table.draw(input_table(shown.report.inputs), INPUTS)
    else:
        for side, result in shown.results.items():  # of one side alone what its backend tells
            lines = [line for line in input_lines(result, result) if line.a is not None]
            table.draw(input_table(lines)[["input", "A"]].rename(columns={"A": side.upper()}))
    figure.opened("Raw texts", f"{shown.prefix}raw texts", partial(_raw, shown))
    files()


def _raw(shown: PairView) -> None:
    columns = st.columns(max(len(shown.results), 1))
    for column, (side, result) in zip(columns, shown.results.items(), strict=False):
        column.caption(plain(side_label(side, result.backend)))
        column.code(sheet_text(result, shown.sheet)[0], language=None, wrap_lines=True, height=480)


def input_table(lines: Sequence[InputLine]) -> pd.DataFrame:
    """Input parity, one line a fact, with the marks of _MARKS."""
    marks = {"equal": "✓", "differs": "✗"}
    rows = [
        (
            "–" if line.state == "differs" and not line.decides else marks.get(line.state, "?"), line.name,
            *(NOT_KNOWN if value is None else value for value in (line.a, line.b)),
        )
        for line in lines
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(INPUTS))


# --- times ----------------------------------------------------------------------------------------


def stage_times(results: Results) -> pd.DataFrame:
    """A row a measured stage in the order of running, a column a side in ms, and B over A of two."""
    found = {
        side.upper(): [result.milliseconds(stage) for stage in Stage] for side, result in results.items()
    }
    times = pd.DataFrame({"stage": [stage.value for stage in Stage], **found})
    times = times.dropna(subset=[*found], how="all").reset_index(drop=True)
    if {"A", "B"} <= {*found}:
        times["ratio"] = times["B"].astype(float) / times["A"].astype(float)
    return times.astype(dict.fromkeys(found, float))
