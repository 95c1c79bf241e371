"""The tabs of a pair that Compare and Review share beside Text: Boxes, Tokens, Inputs, Timings."""

from __future__ import annotations

import streamlit as st

from dsocr_core.outputs.compression import compression
from dsocr_core.outputs.margins import divergence_words
from dsocr_core.parity_records import Divergence
from dsocr_core.words import plural
from pages.widgets.pair import boxes
from pages.widgets.pair.shown import Shown
from pages.widgets.shared import charts, figure, result_tables
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.result_tables import token_count


def draw_tokens(shown: Shown) -> None:
    """The tokens step by step; where they diverge those around that step, unless all are asked for."""
    silent = [side for side, result in shown.results.items() if result.token_ids is None]
    if silent:
        st.caption(f"Tokens of {' and '.join(map(side_letter, silent))}: not known.")
    if len(silent) == len(shown.results):
        return
    told = {side: result for side, result in shown.results.items() if side not in silent}
    table = result_tables.token_table(told)
    divergence = shown.report.first_divergence if shown.report else None
    if divergence is not None:
        _divergence(shown, divergence)
        if not st.toggle("All tokens", key=f"{shown.prefix}all tokens", persist_state="session"):
            table = result_tables.around(table, divergence.index)
    elif shown.report is not None and shown.report.tokens_equal:
        st.caption(f"All {plural(len(table), 'token')} are equal.")
    st.dataframe(
        table,
        hide_index=True,
        height=boxes.table_height(len(table)),
        placeholder="",
        column_config={"step": st.column_config.NumberColumn(width=60)},
    )


def _divergence(shown: Shown, divergence: Divergence) -> None:
    """Where the tokens diverge, after which text, and whether rounding alone explains it."""
    counts = [token_count(result) for result in shown.results.values()]
    row = None if divergence.box_a is None else shown.row_of(divergence.box_a, None)
    where = "before the first box" if row is None else f"in box {(divergence.box_a or 0) + 1} of A"
    st.caption(
        f"Tokens diverge at step {divergence.index} of {' and '.join(f'{count:,}' for count in counts)}, "
        f"{where}; {divergence_words(divergence, min(counts))}. Before it:"
    )
    st.code(divergence.context[-300:] or "(the start)", language=None, wrap_lines=True)
    if (margins := divergence.margins) is not None:
        table = result_tables.best_table({"a": margins.a, "b": margins.b}, shown.results.values())
        st.dataframe(table, hide_index=True, height="content", placeholder="")


_INPUTS = {
    True: "Everything that decides is equal.",
    False: "What went into the model differs: the outputs cannot be expected to agree.",
    None: "What went into the model is not known on both sides.",
}


def draw_inputs(shown: Shown) -> None:
    """What went into both models, line by line; of one side alone what its backend tells."""
    for side, result in shown.results.items():
        if (figures := compression(result)) is not None:
            st.caption(f"{side_label(side, result.backend)}: {figures}")
    if shown.report is not None:
        st.caption(f"{_INPUTS[shown.report.input_parity]} {result_tables.INPUT_MARKS}")
        st.dataframe(
            result_tables.input_table(shown.report.inputs),
            hide_index=True,
            height="content",
            column_config={"same": st.column_config.Column(width=50)},
        )
        return
    for side, result in shown.results.items():
        st.caption(f"Only {side_label(side, result.backend)} has a result: there is nothing to compare.")
        if (inputs := result.inputs) is not None:
            st.dataframe(result_tables.single_input_table(inputs), hide_index=True)


def draw_timings(shown: Shown, words: str, reproduce: str = "") -> None:
    """Times of each stage; `words` say of how many runs, `reproduce` is what measures them again."""
    timed = {side: result for side, result in shown.results.items() if result.timings}
    if not timed:
        st.caption("No times of this page are on record.")
        return
    spans = result_tables.timing_spans(timed)
    figure.head(words, reproduce=reproduce, timings=spans)
    names = {side_letter(side): shown.names[side] for side in timed}
    figure.plot(charts.stage_bars(spans, names), f"{shown.prefix}stage bars", words)
    st.dataframe(result_tables.timing_table(shown.results), hide_index=True, height="content")
