"""The tab Details: what went into both models, the time of each stage, raw texts, tokens, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import pandas as pd
import streamlit as st

from dsocr_core.models.family import all_stages, inside_prefill
from dsocr_core.reading.input_parity import input_lines
from dsocr_core.reading.margins import FRACTION_BITS, ulp
from dsocr_core.reading.parity_records import NOT_KNOWN, InputLine
from dsocr_core.reading.records import SIDES, OcrResult, Side
from pages.widgets.pair.bars import Part, bars_html, spans
from pages.widgets.pair.shown import PairView, Results, sheet_text
from pages.widgets.shared import table
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

_INPUTS_WORDS = {
    True: "All settings that affect the result are equal.",
    False: "The settings differ, so the outputs may differ.",
    None: "What went into the model is not known on both sides.",
}
_MARKS = "✓ equal, ✗ differs, – differs without effect, ? not known on a side."
INPUTS = {"same": Column("", width=40), **{name: Column(name) for name in ("input", "A", "B")}}


def draw(shown: PairView, files: Callable[[], None] | None = None) -> None:
    """Draw it; `files` draws what can be taken away."""
    _timings(shown)
    _inputs(shown)
    for words, drawer in (("Raw texts", _raw), ("Tokens", _tokens)):
        more = st.expander(words, key=f"{shown.prefix}{words}", on_change="rerun")
        if more.open:
            with more:
                drawer(shown)
    if files is not None:
        files()


def _raw(shown: PairView) -> None:
    columns = st.columns(max(len(shown.results), 1))
    for column, (side, result) in zip(columns, shown.results.items(), strict=False):
        column.caption(plain(side_label(side, result.backend)))
        column.code(sheet_text(result, shown.sheet)[0], language=None, wrap_lines=True, height=480)


# --- inputs ---------------------------------------------------------------------------------------


def _inputs(shown: PairView) -> None:
    """Inputs of both models line by line; of one side alone what its backend tells."""
    if shown.report is not None:
        st.caption(f"{_INPUTS_WORDS[shown.report.input_parity]} {_MARKS}")
        table.draw(input_table(shown.report.inputs), INPUTS)
        return
    for side, result in shown.results.items():
        lines = [line for line in input_lines(result, result) if line.a is not None]
        table.draw(input_table(lines)[["input", "A"]].rename(columns={"A": side_letter(side)}))


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


def _timings(shown: PairView) -> None:
    timed = {side: result for side, result in shown.results.items() if result.timings}
    if not timed:
        st.caption("No times of this page are recorded.")
        return
    words = "Time of each stage, one run of each side. Vision is part of prefill."
    st.caption(words)
    st.html(bars_html({shown.names[side]: stage_parts(result) for side, result in timed.items()}, words))


def stage_parts(result: OcrResult) -> list[Part]:
    """The measured stages of a result in the order of running."""
    return [
        (stage.value, spent, stage in inside_prefill())
        for stage in all_stages()
        if (spent := result.milliseconds(stage)) is not None
    ]


def timing_spans(results: Results) -> pd.DataFrame:
    """One row a measured stage with where its bar begins: side, backend, stage, start_ms, ms, inside."""
    rows = [
        (side_letter(side), result.backend, stage, start, spent, inside)
        for side, result in results.items()
        for start, (stage, spent, inside) in spans(stage_parts(result))
    ]
    return pd.DataFrame(rows, columns=["side", "backend", "stage", "start_ms", "ms", "inside"])


# --- tokens ---------------------------------------------------------------------------------------


def _tokens(shown: PairView) -> None:
    known = {side: result for side, result in shown.results.items() if result.token_ids is not None}
    silent = [side_letter(side) for side in shown.results if side not in known]
    if silent:
        st.caption(f"Tokens of {' and '.join(silent)}: not known.")
    if known:
        frame = token_table(known)
        numbers = {name: "" for name in frame if name.endswith(" margin") or " ULP " in name}
        heads = {name: Column(name, numbers.get(name, "text")) for name in frame}
        table.draw(frame, heads | {"step": Column("step", "count", width=68)}, "", 12)


def token_table(results: Mapping[Side, OcrResult]) -> pd.DataFrame:
    """One row a new token: id, text and margin of the best logit on each side, and a mark of equality.

    The margin also in ULP of the coarser dtype, at the larger logit of the step: those of both sides add up
    to the ULP of a divergence. A side that recorded no logits has no column for them.
    """
    length = max((len(result.token_ids or ()) for result in results.values()), default=0)

    def filled(values: Sequence[object], empty: object = None) -> list[object]:
        return [*values[:length], *[empty] * (length - len(values))]

    dtypes = {result.inputs.dtype for result in results.values() if result.inputs}
    coarsest = next((name for name in FRACTION_BITS if name in dtypes), None)
    steps = zip_longest(*(result.top_two for result in results.values() if result.top_two))
    largest = [max(abs(logit) for top in tops if top for logit in top.logits) for tops in steps]
    units = [ulp(logit, coarsest) for logit in largest] if coarsest else []
    columns: dict[str, object] = {"step": list(range(length))}
    for side, result in results.items():
        letter, tokens = side_letter(side), list(result.token_ids or ())
        texts = [repr(text)[1:-1] for text in result.token_texts] or [NOT_KNOWN] * len(tokens)
        columns[f"{letter} id"] = pd.Series(filled(tokens), dtype="Int64")
        columns[f"{letter} text"] = filled(texts, "")
        if result.top_two:
            margins = [top.margin for top in result.top_two]
            columns[f"{letter} margin"] = filled(margins)
            if coarsest is not None:
                ulps = [margin / unit for margin, unit in zip(margins, units, strict=False)]
                columns[f"{letter} ULP ({coarsest})"] = filled(ulps)
    frame = pd.DataFrame(columns)
    if all(side in results and results[side].token_ids for side in SIDES):
        frame["same"] = (frame["A id"] == frame["B id"]).fillna(False).map({True: "✓", False: "✗"})
    return frame
