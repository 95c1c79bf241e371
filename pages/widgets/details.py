"""The tabs under the viewer: Text, Boxes, Tokens, Layers, Inputs, Timings, Files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import streamlit as st

from dsocr_core.outputs.margins import parting_words
from dsocr_core.records import PROMPTS, Divergence, OcrResult, ParityReport
from dsocr_core.settings import PROJECT_ROOT, Settings
from pages.widgets import charts, downloads, layers_tab, reading, tables
from pages.widgets.document import show_columns, show_difference
from pages.widgets.document.blocks import Block, parse_blocks, word_difference
from pages.widgets.formats import percent, plural
from pages.widgets.viewer.payload import Pairing

if TYPE_CHECKING:
    from dsocr_core.results import Comparison

_TITLE_LEVELS = {"title": 1, "sub_title": 2}
TABS = ("Text", "Boxes", "Tokens", "Layers", "Inputs", "Timings", "Files")


@dataclass(frozen=True)
class Shown:
    """What the tabs are about. `select` takes the name of the component whose state changed."""

    comparison: Comparison
    rows: list[Pairing]
    settings: Settings
    selected: int | None
    select: Callable[[str], None]


def draw(shown: Shown) -> None:
    """Draw the tabs; only the open one is computed."""
    tabs = st.tabs(list(TABS), key="tab", on_change="rerun")
    drawers = (_text, _boxes, _tokens, _layers, _inputs, _timings, _files)
    for tab, drawer in zip(tabs, drawers, strict=True):
        if tab.open:
            with tab:
                drawer(shown)


def _height(rows: int) -> int | Literal["content"]:
    """Small tables whole, large ones scrolling."""
    return "content" if rows <= 12 else 420


# --- Text -----------------------------------------------------------------------------------------


def _text(shown: Shown) -> None:
    comparison = shown.comparison
    both = bool(comparison.ours and comparison.vendor)
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
    if view == "Difference" and comparison.ours and comparison.vendor:
        ours, vendor = reading.plain_text(comparison.ours), reading.plain_text(comparison.vendor)
        if ours == vendor:
            st.caption(f"Both texts are equal, {plural(len(ours), 'character')}.")
        show_difference("difference", word_difference(ours, vendor))
        return
    results = [result for result in (comparison.ours, comparison.vendor) if result]
    columns = [
        (result.road, [Block("code", result.text_raw)] if view == "Raw" else _rendered(result, shown.rows))
        for result in results
    ]
    show_columns("document", columns, shown.selected, lambda: shown.select("document"))


def _rendered(result: OcrResult, rows: list[Pairing]) -> list[Block]:
    """The text of one road as blocks, each with the pair its box belongs to; titles stand out."""
    pair_of = {
        box.index: number
        for number, row in enumerate(rows)
        if (box := row.ours if result.road == "ours" else row.vendor) is not None
    }
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
    results = [result for result in (shown.comparison.ours, shown.comparison.vendor) if result]
    draw_boxes(results, shown.comparison.report, shown.rows, shown.selected, shown.select)


def draw_boxes(
    results: Sequence[OcrResult],
    report: ParityReport | None,
    rows: list[Pairing],
    selected: int | None,
    select: Callable[[str], None],
    sides: tuple[str, str] = ("ours", "vendor"),
) -> None:
    """The table of boxes, linked with the viewer. `sides` are the names of ours and vendor."""
    odd = [line for result in results for line in reading.malformed(result)]
    if odd:
        with st.expander(f"{plural(len(odd), 'span')} could not be read"):
            st.dataframe(
                {"span": [span for span, _ in odd], "reason": [why for _, why in odd]}, hide_index=True
            )
    table = tables.box_table(
        [(row.state, row.ours, row.vendor, row.iou, row.shift_percent) for row in rows], sides
    )
    if table.empty:
        st.caption("No boxes on this page. The markdown prompt asks for boxes; the others may not.")
        return
    st.dataframe(
        table,
        key="box table",
        hide_index=True,
        height=_height(len(table)),
        on_select=lambda: select("box table"),
        selection_mode="single-row",
        placeholder="",
        selection_default={"selection": {"rows": [] if selected is None else [selected]}},
        column_config={
            "#": st.column_config.NumberColumn(width=45),
            "IoU": st.column_config.NumberColumn(format="%.3f"),
            "shift (%)": st.column_config.NumberColumn(format="%.2f"),
        },
    )
    note = plural(len(table), "row")
    if report is not None:
        most = max(report.boxes_ours, report.boxes_vendor)
        note = (
            f"{report.boxes_matched} of {plural(most, 'box', 'boxes')} paired, "
            f"mean shift {percent(report.mean_coordinate_difference_percent)} of the image side "
            f"(n = {report.boxes_matched})"
        )
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.caption(note)
    right.download_button(
        "CSV", tables.box_csv(table), "boxes.csv", "text/csv", on_click="ignore", width="stretch",
        icon=":material/download:",
    )  # fmt: skip


# --- Tokens ---------------------------------------------------------------------------------------


def _tokens(shown: Shown) -> None:
    comparison = shown.comparison
    table = tables.token_table(comparison.ours, comparison.vendor)
    report = comparison.report
    divergence = report.first_divergence if report else None
    if report is not None and divergence is None:
        st.caption(f"All {plural(len(table), 'token')} are equal.")
    elif divergence is not None:
        st.caption(f"The first difference is at step {divergence.index}, after:")
        st.code(divergence.context[-300:] or "(the start)", language=None, wrap_lines=True)
        _two_best(divergence, [result for result in (comparison.ours, comparison.vendor) if result])
        if not st.toggle("All tokens", key="all tokens", persist_state="session"):
            table = tables.around(table, divergence.index)
    st.dataframe(
        table,
        hide_index=True,
        height=_height(len(table)),
        placeholder="",
        column_config={"step": st.column_config.NumberColumn(width=60)},
    )


def _two_best(divergence: Divergence, results: Sequence[OcrResult]) -> None:
    """Both roads' two best logits where the tokens part, and whether rounding explains it."""
    st.caption(
        f"At that step: {parting_words(divergence, min(len(result.token_ids) for result in results))}."
    )
    if (margins := divergence.margins) is not None:
        table = tables.best_table({"ours": margins.ours, "vendor": margins.vendor}, results)
        st.dataframe(table, hide_index=True, height="content", placeholder="")


def _layers(shown: Shown) -> None:
    layers_tab.draw(shown.settings, shown.comparison.request)


# --- Inputs ---------------------------------------------------------------------------------------


def _inputs(shown: Shown) -> None:
    report = shown.comparison.report
    if report is not None:
        st.caption(
            "Everything that decides is equal. A dash marks a difference that decides nothing."
            if report.input_parity
            else "What went into the model differs: the outputs cannot be expected to agree."
        )
        st.dataframe(
            tables.input_table(report),
            hide_index=True,
            column_config={"same": st.column_config.Column(width=50)},
        )
        return
    result = shown.comparison.ours or shown.comparison.vendor
    if result is not None:
        st.caption(f"Only {result.road} ran; run both to compare the inputs.")
        st.dataframe(tables.single_input_table(result.inputs), hide_index=True)


# --- Timings --------------------------------------------------------------------------------------


def _timings(shown: Shown) -> None:
    comparison = shown.comparison
    results = [result for result in (comparison.ours, comparison.vendor) if result]
    spans = tables.timing_spans(results)
    head, menu = st.columns([9, 1], vertical_alignment="center")
    head.caption(
        "One run of each road (n = 1); the first after a start is slower. Vision lies inside prefill."
    )
    with menu.popover("More", width="stretch"):
        st.download_button(
            "Times as CSV", spans.to_csv(index=False).encode(), "timings.csv", "text/csv", on_click="ignore",
            width="stretch", icon=":material/download:",
        )  # fmt: skip
        st.caption("The same run on the command line:")
        st.code(reproduce_command(shown), language="bash", wrap_lines=True)
    st.plotly_chart(charts.stage_bars(spans), key="stage bars", config={"displayModeBar": False})
    st.dataframe(tables.timing_table(comparison.ours, comparison.vendor), hide_index=True, height="content")


def reproduce_command(shown: Shown) -> str:
    """The command line that runs this page again under these settings."""
    request, settings = shown.comparison.request, shown.settings
    name = next((name for name, text in PROMPTS.items() if text == request.prompt), request.prompt)
    image = request.image
    if image.is_relative_to(PROJECT_ROOT):
        image = image.relative_to(PROJECT_ROOT)
    words = [
        "python",
        "-m",
        "dsocr_core",
        "compare",
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
    words += ["--attention", settings.for_comparison().own_attention]
    if settings.dtype != "auto":
        words += ["--dtype", settings.dtype]
    if not settings.is_embedded:
        words += ["--checkpoint", settings.checkpoint]
    return shlex.join(words)


# --- Files ----------------------------------------------------------------------------------------


def _files(shown: Shown) -> None:
    comparison = shown.comparison
    st.caption(
        "For each road `result.mmd`, `result_with_boxes.jpg`, `info.json` and the `images/` it cut out; "
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
    st.dataframe({"file": contents}, hide_index=True, height=_height(len(contents)), width=420)
