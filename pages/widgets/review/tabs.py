"""The tabs under the viewer: what differs on the page shown, and the review as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.margins import divergence_words
from dsocr_core.records import SIDES
from dsocr_core.review.accuracy import Accuracy, accuracy, page_truth
from dsocr_core.review.page import KINDS, Difference, Step
from pages.widgets.components.document import Aligned, Runs, show_aligned, show_columns
from pages.widgets.components.document.blocks import Block, word_difference
from pages.widgets.review import address, summary
from pages.widgets.review.address import TABS, key, value
from pages.widgets.review.view import Shown
from pages.widgets.shared import boxes, charts, figure, layers_tab, resources, result_tables
from pages.widgets.shared.formats import NOT_MEASURED, NOT_RECORDED, percent, plural, significant
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.pairing import Pairing
from pages.widgets.shared.result_tables import STATE_WORDS, token_count
from pages.widgets.shared.sources import typed_path

if TYPE_CHECKING:
    from dsocr_core.review.accuracy import Truth

_MOST_WORDS = 20_000
"""Characters of one block whose words are compared; the rest of a longer one is shown as it is."""


def draw(shown: Shown) -> None:
    """Draw the tabs; only the open one is computed."""
    tabs = st.tabs(list(TABS), key=key("tab"), on_change="rerun")
    drawers = (
        _differences, _text, _boxes, _tokens, _layers, _inputs, _timings, _accuracy, summary.draw,
    )  # fmt: skip
    for tab, drawer in zip(tabs, drawers, strict=True):
        if tab.open:
            with tab:
                drawer(shown)


def _select(name: str) -> None:
    """A click in a text or in the table of boxes."""
    state: Any = st.session_state[name]
    rows = state["selection"]["rows"] if name == boxes.TABLE else [state.get("selected")]
    address.select(rows[0] if rows else None)


# --- Differences ----------------------------------------------------------------------------------


def _differences(shown: Shown) -> None:
    page = shown.page
    found = [
        Block("item", f"{KINDS[item.kind]}: {item.words}{_evidence(item)}", box=shown.row_of_difference(item))
        for item in page.differences
    ]
    hints = [Block("item", hint.words) for hint in page.hints]
    title = f"{plural(len(found), 'difference')}, gravest first" if found else "No differences"
    agree = [Block("paragraph", "both sides agree")]
    no_hint = [Block("paragraph", "none found" if found else "nothing to explain")]
    columns = [(title, found or agree), ("Likely cause", hints or no_hint)]
    show_columns("review differences", columns, shown.selected, lambda: _select("review differences"))
    parts = ", ".join(f"{name} {significant(part)}" for name, part in page.parts.items())
    st.caption(plain(f"Score {significant(page.score)}{f' = {parts}' if parts else ''}"))


def _evidence(item: Difference) -> str:
    iou = item.evidence.get("iou")
    return f", IoU {iou:.3g}" if isinstance(iou, float) else ""


# --- Text -----------------------------------------------------------------------------------------


def _text(shown: Shown) -> None:
    if not shown.results:
        st.caption("Neither side has a text on record.")
        return
    lines = list(_lines(shown))
    differing = [line for line in lines if line.left != line.right]
    head, switch = st.columns([4, 1], vertical_alignment="center")
    head.caption(
        f"{len(differing)} of {plural(len(lines), 'block')} differ; only A is struck through, "
        "only B is underlined. A click selects the box."
    )
    only = switch.toggle("Only what differs", key="review only", persist_state="session")
    show_aligned(
        "review aligned", (shown.names["a"], shown.names["b"]), differing if only else lines, shown.selected,
        lambda: _select("review aligned"),
    )  # fmt: skip


def _lines(shown: Shown) -> Iterator[Aligned]:
    """The text outside of blocks where it differs, then block beside block in A's order."""
    outside = [block for block in shown.page.blocks if block.pair is None]
    for block in outside:
        yield Aligned("outside of blocks", *_compared(block.text_a, block.text_b))
    if not shown.rows and not outside:
        text: Runs = [(next(iter(shown.results.values())).text_raw, "same")]
        yield Aligned("no blocks", text, text)
    for number, row in enumerate(shown.rows):
        if row.a is not None and row.b is not None:
            yield Aligned(_caption(row), *_compared(row.a.text, row.b.text), box=number)
        else:
            a: Runs | None = [(row.a.text, "only_a")] if row.a is not None else None
            b: Runs | None = [(row.b.text, "only_b")] if row.b is not None else None
            yield Aligned(_caption(row), a, b, box=number)


def _caption(row: Pairing) -> str:
    box = row.a or row.b
    assert box is not None
    labels = dict.fromkeys(box.label for box in (row.a, row.b) if box)
    named = f"#{box.index + 1} {' → '.join(labels)}"
    return named if row.state in ("matched", "single") else f"{named}, {STATE_WORDS[row.state]}"


def _compared(left: str, right: str) -> tuple[Runs, Runs]:
    if left == right:
        return [(left, "same")], [(right, "same")]
    runs = word_difference(left[:_MOST_WORDS], right[:_MOST_WORDS])
    a: Runs = [run for run in runs if run[1] != "only_b"]
    b: Runs = [run for run in runs if run[1] != "only_a"]
    for of_side, text in ((a, left), (b, right)):
        if text[_MOST_WORDS:]:
            of_side.append((text[_MOST_WORDS:], "same"))
    return a, b


# --- Boxes, Tokens, Inputs ------------------------------------------------------------------------


def _boxes(shown: Shown) -> None:
    boxes.draw(shown.results, shown.page.report, shown.rows, shown.selected, _select)


def _tokens(shown: Shown) -> None:
    a, b = shown.detail.comparison.a, shown.detail.comparison.b
    if not (a and b and a.token_ids and b.token_ids):
        st.caption("The tokens of both sides are not known: there is nothing to show side by side.")
        return
    divergence = shown.detail.divergence
    if divergence is None:
        st.caption(f"All {plural(token_count(a), 'token')} are equal.")
        return
    row = shown.row_of(divergence.box_a, None) if divergence.box_a is not None else None
    where = "before the first box" if row is None else f"in box {(divergence.box_a or 0) + 1} of A"
    counts = token_count(a), token_count(b)
    st.caption(
        f"Tokens diverge at step {divergence.index} of {counts[0]:,} and {counts[1]:,}, {where}; "
        f"{_why(shown, min(counts))}."
    )
    st.dataframe(
        step_table(divergence.a, divergence.b), hide_index=True, height="content", placeholder="",
        column_config={"step": st.column_config.NumberColumn(width=60)},
    )  # fmt: skip


def _why(shown: Shown, tokens: int) -> str:
    """Whether rounding alone can explain the divergence; `tokens` are those of the shorter side."""
    report = shown.page.report
    divergence = report.first_divergence if report else None
    return divergence_words(divergence, tokens) if divergence else NOT_RECORDED


def step_table(a: tuple[Step, ...], b: tuple[Step, ...]) -> pd.DataFrame:
    """The tokens around the first divergence, step by step on both sides; ✗ where they are not the same.

    A side that recorded no logits has no column for them.
    """
    sides = {"A": {step.index: step for step in a}, "B": {step.index: step for step in b}}
    rows = []
    for number in sorted({*sides["A"], *sides["B"]}):
        here = {name: steps.get(number) for name, steps in sides.items()}
        same = not any(step is None or step.differs for step in here.values())
        row: dict[str, Any] = {"step": number, "same": "✓" if same else "✗"}
        for name, step in here.items():
            row[f"{name} token"] = "" if step is None else token_words(step.id, step.text)
            if any(each.top for each in sides[name].values()):
                row[f"{name} likeliest two, logits"] = "" if step is None else _top(step)
        rows.append(row)
    return pd.DataFrame(rows)


def token_words(number: int, text: str | None) -> str:
    return f"{number}" if text is None else f"{number} ‘{repr(text)[1:-1]}’"


def _top(step: Step) -> str:
    found = [f"{token_words(one.id, one.text)} {one.logit:.3f}" for one in step.top]
    if len(step.top) == 2:
        found.append(f"margin {step.top[0].logit - step.top[1].logit:.3f}")
    return ", ".join(found) or NOT_RECORDED


def _layers(shown: Shown) -> None:
    request = next((result.request for result in shown.results.values()), None)
    layers_tab.draw_recorded(
        shown.page.name, request, "review layers",
        "Compare has the button; `dsocr trace PAGE --save` does the same.",
    )  # fmt: skip


def _inputs(shown: Shown) -> None:
    lines = shown.page.inputs
    if not lines:
        st.caption("What went into the models cannot be compared: a side has no result.")
        return
    st.caption(result_tables.INPUT_MARKS)
    st.dataframe(
        result_tables.input_table(lines),
        hide_index=True,
        height="content",
        column_config={"same": st.column_config.Column(width=50)},
    )


# --- Timings, Accuracy ----------------------------------------------------------------------------


def _timings(shown: Shown) -> None:
    timed = {side: result for side, result in shown.results.items() if result.timings}
    if not timed:
        st.caption("No times of this page are on record.")
        return
    spans = result_tables.timing_spans(timed)
    words = "This page, one run of each side (n = 1). Vision lies inside prefill. All pages: Whole review."
    figure.head(words, timings=spans)
    names = {side_letter(side): name for side, name in shown.names.items()}
    figure.plot(charts.stage_bars(spans, names), "review stage bars", words)
    st.dataframe(result_tables.timing_table(shown.results), hide_index=True, height="content")


def _accuracy(shown: Shown) -> None:
    st.text_input(
        "More ground truth", key=key("truth"), placeholder="path of a JSON file",
        help="As data/samples/ground_truth.json or as OmniDocBench writes it; the samples have theirs.",
    )  # fmt: skip
    try:
        path = typed_path(value("truth"), resources.allowed_roots()) if value("truth").strip() else None
        truth = resources.truth(path)
        _accuracies(shown, truth, str(path or ""))
    except DsocrError as error:
        show_error(error)


def _accuracies(shown: Shown, truth: Truth, path: str) -> None:
    of_page = page_truth(truth, shown.page)
    if of_page is None:
        st.caption("This page has no ground truth (it is found by the page's name and size).")
    else:
        here = {name: accuracy(side, of_page) for name, side in (("A", shown.page.a), ("B", shown.page.b))}
        st.caption(f"This page, against {plural(len(of_page.blocks), 'true block')}:")
        st.dataframe(accuracy_table({name: _measures(one) for name, one in here.items()}), hide_index=True)
    means = resources.mean_accuracy(shown.review, shown.review.key, truth, path)
    counted = {side_letter(side): means[side] for side in SIDES}
    if any(values["pages"] for values in counted.values()):
        pages = ", ".join(f"{name} {int(values['pages'] or 0):,}" for name, values in counted.items())
        st.caption(f"Means over the pages with a ground truth ({pages}):")
        st.dataframe(accuracy_table(counted), hide_index=True)


def _measures(found: Accuracy | None) -> dict[str, float | None]:
    return vars(found) if found else {}


def accuracy_table(sides: dict[str, dict[str, float | None]]) -> pd.DataFrame:
    """Three measures of each side; "not measured" where there is nothing to count."""

    def figure(values: dict[str, float | None], name: str) -> str:
        found = values.get(name)
        if found is None:
            return NOT_MEASURED
        return significant(found) if name == "box_f1" else percent(100 * found)

    words = {
        "box_f1": "box F1 at IoU 0.75 and equal label",
        "character_error_rate": "character error rate",
        "order_distance": "reading order, edits per block",
    }
    rows = [
        {"measure": text, **{side: figure(values, name) for side, values in sides.items()}}
        for name, text in words.items()
    ]
    return pd.DataFrame(rows)
