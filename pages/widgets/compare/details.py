"""The tabs under the viewer: Text, Boxes, Tokens, Why, Layers, Inputs, Timings, Files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.outputs.compression import compression
from dsocr_core.outputs.margins import divergence_words
from dsocr_core.parity_records import Divergence
from dsocr_core.records import PROMPTS, VENDOR, OcrResult, Side
from dsocr_core.settings import PROJECT_ROOT, Settings
from pages.widgets.compare import cause_tab, downloads
from pages.widgets.components.document import show_columns, show_difference
from pages.widgets.components.document.blocks import Block, parse_blocks, word_difference
from pages.widgets.shared import boxes, charts, figure, layers_tab, reading, result_tables
from pages.widgets.shared.formats import plural
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.pairing import Pairing
from pages.widgets.shared.result_tables import Results, token_count

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison

_TITLE_LEVELS = {"title": 1, "sub_title": 2}
TABS = ("Text", "Boxes", "Tokens", "Why", "Layers", "Inputs", "Timings", "Files")


@dataclass(frozen=True)
class Shown:
    """What the tabs are about. `select` takes the name of the component whose state changed."""

    comparison: Comparison
    rows: list[Pairing]
    settings: Settings
    selected: int | None
    select: Callable[[str], None]

    @property
    def results(self) -> Results:
        return self.comparison.results


def draw(shown: Shown) -> None:
    """Draw the tabs; only the open one is computed."""
    tabs = st.tabs(list(TABS), key="tab", on_change="rerun")
    drawers = (_text, _boxes, _tokens, _why, _layers, _inputs, _timings, _files)
    for tab, drawer in zip(tabs, drawers, strict=True):
        if tab.open:
            with tab:
                drawer(shown)


# --- Text -----------------------------------------------------------------------------------------


def _text(shown: Shown) -> None:
    comparison = shown.comparison
    both = bool(comparison.a and comparison.b)
    views = ["Rendered", "Raw", "Difference"] if both else ["Rendered", "Raw"]
    view = st.segmented_control(
        "View",
        views,
        default="Rendered",
        required=True,
        key="text view",
        persist_state="session",
        label_visibility="collapsed",
    )
    if view == "Difference" and comparison.a and comparison.b:
        a, b = reading.plain_text(comparison.a), reading.plain_text(comparison.b)
        if a == b:
            st.caption(f"Both texts are equal, {plural(len(a), 'character')}.")
        show_difference("difference", word_difference(a, b))
        return
    columns = [
        (
            side_label(side, result.backend),
            [Block("code", result.text_raw)] if view == "Raw" else _rendered(side, result, shown.rows),
        )
        for side, result in shown.results.items()
    ]
    show_columns("document", columns, shown.selected, lambda: shown.select("document"))


def _rendered(side: Side, result: OcrResult, rows: list[Pairing]) -> list[Block]:
    """The text of one side as blocks, each with the pair its box belongs to; titles stand out."""
    pair_of = {box.index: number for number, row in enumerate(rows) if (box := row.box(side)) is not None}
    blocks = []
    for segment in reading.segments(result):
        pair = None if segment.box is None else pair_of.get(segment.box)
        parts = parse_blocks(segment.text, pair)
        level = _TITLE_LEVELS.get(segment.label)
        if level and len(parts) == 1 and parts[0].kind == "paragraph":
            parts = [replace(parts[0], kind="heading", level=level)]
        blocks += parts
    return blocks


# --- Boxes ----------------------------------------------------------------------------------------


def _boxes(shown: Shown) -> None:
    boxes.draw(shown.results, shown.comparison.report, shown.rows, shown.selected, shown.select)


# --- Tokens ---------------------------------------------------------------------------------------


def _tokens(shown: Shown) -> None:
    report = shown.comparison.report
    table = result_tables.token_table(shown.results)
    silent = [side for side, result in shown.results.items() if result.token_ids is None]
    if silent:
        st.caption(f"Tokens of {' and '.join(map(side_letter, silent))}: not known.")
    divergence = report.first_divergence if report else None
    if divergence is not None:
        st.caption(f"The first difference is at step {divergence.index}, after:")
        st.code(divergence.context[-300:] or "(the start)", language=None, wrap_lines=True)
        _two_best(divergence, shown.results)
        if not st.toggle("All tokens", key="all tokens", persist_state="session"):
            table = result_tables.around(table, divergence.index)
    elif report is not None and report.tokens_equal:
        st.caption(f"All {plural(len(table), 'token')} are equal.")
    st.dataframe(
        table,
        hide_index=True,
        height=boxes.table_height(len(table)),
        placeholder="",
        column_config={"step": st.column_config.NumberColumn(width=60)},
    )


def _two_best(divergence: Divergence, results: Results) -> None:
    """Both sides' two best logits where the tokens diverge, and whether rounding explains it."""
    tokens = min(map(token_count, results.values()))
    st.caption(f"At that step: {divergence_words(divergence, tokens)}.")
    if (margins := divergence.margins) is not None:
        table = result_tables.best_table({"a": margins.a, "b": margins.b}, results.values())
        st.dataframe(table, hide_index=True, height="content", placeholder="")


def _why(shown: Shown) -> None:
    cause_tab.draw(shown.settings, shown.comparison, reproduce_command(shown, "why"))


def _layers(shown: Shown) -> None:
    report = shown.comparison.report
    divergence = report.first_divergence if report else None
    layers_tab.draw(shown.settings, shown.comparison.request, divergence)


# --- Inputs ---------------------------------------------------------------------------------------


_INPUTS = {
    True: "Everything that decides is equal.",
    False: "What went into the model differs: the outputs cannot be expected to agree.",
    None: "What went into the model is not known on both sides.",
}


def _inputs(shown: Shown) -> None:
    report = shown.comparison.report
    for side, result in shown.results.items():
        if (figures := compression(result)) is not None:
            st.caption(f"{side_label(side, result.backend)}: {figures}")
    if report is not None:
        st.caption(f"{_INPUTS[report.input_parity]} {result_tables.INPUT_MARKS}")
        st.dataframe(
            result_tables.input_table(report.inputs),
            hide_index=True,
            column_config={"same": st.column_config.Column(width=50)},
        )
        return
    for side, result in shown.results.items():
        st.caption(f"Only {side_label(side, result.backend)} ran; run both to compare the inputs.")
        if (inputs := result.inputs) is not None:
            st.dataframe(result_tables.single_input_table(inputs), hide_index=True)


# --- Timings --------------------------------------------------------------------------------------


def _timings(shown: Shown) -> None:
    spans = result_tables.timing_spans(shown.results)
    words = "One run of each backend (n = 1); the first after a start is slower. Vision lies inside prefill."
    figure.head(words, reproduce=reproduce_command(shown), timings=spans)
    names = {side_letter(side): side_label(side, result.backend) for side, result in shown.results.items()}
    figure.plot(charts.stage_bars(spans, names), "stage bars", words)
    st.dataframe(result_tables.timing_table(shown.results), hide_index=True, height="content")


def reproduce_command(shown: Shown, command: str = "compare") -> str:
    """The command line that runs this page again under these settings, or asks `why` it differs."""
    request, settings = shown.comparison.request, shown.settings
    name = next((name for name, text in PROMPTS.items() if text == request.prompt), request.prompt)
    image = request.image
    if image.is_relative_to(PROJECT_ROOT):
        image = image.relative_to(PROJECT_ROOT)
    words = [
        "python",
        "-m",
        "dsocr_core",
        command,
        str(image),
        "--preset",
        request.preset,
        "--prompt",
        name,
    ]
    words += [
        "--infer.max_new_tokens",
        "inf" if request.max_new_tokens is None else str(request.max_new_tokens),
    ]
    for mode in ("eval_mode", "test_compress"):
        if getattr(request, mode):
            words += [f"--infer.{mode}", "true"]
    words += ["--attention", settings.for_comparison().own_attention]
    named = settings.a is not None or settings.b is not None
    if named:
        words += ["--config", os.environ.get("DSOCR_CONFIG", "FILE")]
    if named or command == "why":
        words += ["--a", str(settings.a or settings.engine), "--b", str(settings.b or VENDOR)]
    if settings.engine != Settings.engine and command != "why":
        words += ["--engine", settings.engine]
    if settings.dtype != "auto":
        words += ["--dtype", settings.dtype]
    if not settings.is_embedded:
        words += ["--checkpoint", settings.checkpoint]
    return shlex.join(words)


# --- Files ----------------------------------------------------------------------------------------


def _files(shown: Shown) -> None:
    comparison = shown.comparison
    st.caption(
        "For each side `result.mmd`, `result_with_boxes.jpg`, `info.json` and the `images/` it cut out; "
        "for both `parity.json`, `boxes.csv` and `timings.csv`."
    )
    stem = comparison.request.name.rsplit(".", 1)[0] or "page"
    st.download_button(
        "Download all (zip)",
        lambda: downloads.archive(comparison, shown.rows),
        f"{stem}-{comparison.request.preset}.zip",
        "application/zip",
        on_click="ignore",
        icon=":material/download:",
        key="download all",
    )
    contents = downloads.listing(comparison)
    st.dataframe({"file": contents}, hide_index=True, height=boxes.table_height(len(contents)), width=420)
