"""The tabs of a pair that Compare and Review share beside Text: Boxes, Tokens, Inputs, Timings."""

from __future__ import annotations

import streamlit as st

from dsocr_core.base.formatting import NOT_RECORDED, percent, plural
from dsocr_core.reading.margins import divergence_words
from dsocr_core.reading.parity_records import Divergence
from dsocr_core.runs.timings import in_order
from pages.widgets.pair import tables
from pages.widgets.pair.shown import Results, Shown
from pages.widgets.pair.viewer import clicked
from pages.widgets.shared import bars, figure, stages, table
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.stages import StageLine
from pages.widgets.shared.table import Column

BOX_TABLE = "box table"
"""The session's key of the table of boxes, whose selection is a row."""
FEW = 12
"""Rows of a table under the viewer that does not scroll."""


def draw_boxes(shown: Shown) -> None:
    """The table of boxes, linked with the viewer, over it what could not be read; a click selects the row."""
    _malformed(shown.results)
    report, selected = shown.report, shown.selected
    frame = tables.box_table(shown.rows)
    if frame.empty:
        st.caption("No boxes on this page. The markdown prompt asks for boxes; the others may not.")
        return
    table.draw(
        frame, tables.BOXES, "", FEW, key=BOX_TABLE, selection_mode="single-row",
        on_select=lambda: shown.select(clicked(BOX_TABLE)),
        selection_default={"selection": {"rows": [] if selected is None else [selected]}},
    )  # fmt: skip
    note = plural(len(frame), "row")
    if report is not None:
        most = max(report.boxes_a, report.boxes_b)
        note = (
            f"{report.boxes_matched} of {plural(most, 'box', 'boxes')} paired, "
            f"mean shift {percent(report.mean_coordinate_difference_percent)} of the image side "
            f"(n = {report.boxes_matched})"
        )
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.caption(note)
    with right:
        figure.csv_button("CSV", "boxes", frame)


def _malformed(results: Results) -> None:
    """Show what began like a span but could not be read."""
    odd = [
        {"span": f"{side_letter(side)}: {span.label[:80]}", "reason": span.malformed}
        for side, result in results.items()
        for span in result.blocks
        if span.malformed is not None
    ]
    if odd:
        with st.expander(f"{plural(len(odd), 'span')} could not be read"):
            st.dataframe(odd, hide_index=True)


def draw_tokens(shown: Shown) -> None:
    """The tokens step by step; where they diverge those around that step, unless all are asked for."""
    silent = [side for side, result in shown.results.items() if result.token_ids is None]
    if silent:
        st.caption(f"Tokens of {' and '.join(map(side_letter, silent))}: not known.")
    if len(silent) == len(shown.results):
        return
    frame = tables.token_table({side: result for side, result in shown.results.items() if side not in silent})
    divergence, marked = shown.report.first_divergence if shown.report else None, None
    if divergence is not None:
        _divergence(shown, divergence)
        if not st.toggle("All tokens", key=f"{shown.prefix}all tokens", persist_state="session"):
            frame = frame.iloc[max(divergence.index - FEW // 2, 0) : divergence.index + FEW // 2]
            marked = (frame["step"] == divergence.index).tolist()
    elif shown.report is not None and shown.report.tokens_equal:
        st.caption(f"All {plural(len(frame), 'token')} are equal.")
    heads = {
        name: Column(name, "" if name.endswith(" margin") or " ULP " in name else "text") for name in frame
    } | {"step": Column("step", "count", width=68)}
    table.draw(frame, heads, "", FEW, marked)


def _divergence(shown: Shown, divergence: Divergence) -> None:
    """Show where the tokens diverge, after which text, and by how much the two best logits were apart."""
    counts = [len(result.token_ids or ()) for result in shown.results.values()]
    row = None if divergence.box_a is None else shown.row_of(divergence.box_a, None)
    where = "before the first box" if row is None else f"in box {(divergence.box_a or 0) + 1} of A"
    st.caption(
        f"Tokens diverge at step {divergence.index:,} of {' and '.join(f'{count:,}' for count in counts)}, "
        f"{where}; {divergence_words(divergence, min(counts))}. Before it:"
    )
    st.code(divergence.context[-300:] or "(the start)", language=None, wrap_lines=True)
    if (margins := divergence.margins) is not None:
        best = tables.best_table({"a": margins.a, "b": margins.b}, shown.results.values())
        table.draw(best, tables.BEST, NOT_RECORDED)


_INPUTS = {
    True: "Everything that decides is equal.",
    False: "The settings differ,  so the outputs may differ.",
    None: "What went into the model is not known on both sides.",
}


def draw_inputs(shown: Shown) -> None:
    """Show what went into both models, line by line; of one side alone what its backend tells."""
    if shown.report is not None:
        st.caption(f"{_INPUTS[shown.report.input_parity]} {tables.INPUT_MARKS}")
        table.draw(tables.input_table(shown.report.inputs), tables.INPUTS)
        return
    for side, result in shown.results.items():
        st.caption(f"Only {side_label(side, result.backend)} has a result: there is nothing to compare.")
        if (inputs := result.inputs) is not None:
            table.draw(tables.single_input_table(inputs))


def draw_timings(shown: Shown, words: str) -> None:
    """Times of each stage; `words` say of how many runs."""
    timed = {side: result for side, result in shown.results.items() if result.timings}
    if not timed:
        st.caption("No times of this page are on record.")
        return
    figure.head(words, timings=tables.timing_spans(timed))
    lines = [StageLine(shown.names[side], tables.stage_parts(result)) for side, result in timed.items()]
    drawn = {part[0] for line in lines for part in line.parts}
    bars.draw(stages.legend(in_order(drawn)) + stages.panel(lines, "s"), words)
