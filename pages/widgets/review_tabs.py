"""The tabs under the viewer: what differs on the page in sight, and the review as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.margins import parting_words
from dsocr_core.review.accuracy import Accuracy, accuracy, page_truth
from dsocr_core.review.page import KINDS, Difference, Step
from pages.widgets import charts, details, layers_tab, resources, review_whole, tables
from pages.widgets import review_address as address
from pages.widgets.document import Aligned, Runs, show_aligned, show_columns
from pages.widgets.document.blocks import Block, word_difference
from pages.widgets.formats import NOT_MEASURED, NOT_RECORDED, percent, plural, significant
from pages.widgets.messages import plain, show_error
from pages.widgets.review_address import TABS, key, value
from pages.widgets.review_view import SIDES, Sight
from pages.widgets.sources import typed_path
from pages.widgets.viewer.payload import Pairing

if TYPE_CHECKING:
    from dsocr_core.review.accuracy import Truth

_MARKS = {"equal": "✓", "different": "✗", "shown": "–", "not recorded": "?"}
_MOST_WORDS = 20_000
"""Characters of one block whose words are compared; the rest of a longer one is shown as it is."""


def draw(sight: Sight) -> None:
    """Draw the tabs; only the open one is computed."""
    tabs = st.tabs(list(TABS), key=key("tab"), on_change="rerun")
    drawers = (
        _differences, _text, _boxes, _tokens, _layers, _inputs, _timings, _accuracy, review_whole.draw,
    )  # fmt: skip
    for tab, drawer in zip(tabs, drawers, strict=True):
        if tab.open:
            with tab:
                drawer(sight)


def _select(name: str) -> None:
    """A click in a text or in the table of boxes."""
    state: Any = st.session_state[name]
    rows = state["selection"]["rows"] if name == "box table" else [state.get("selected")]
    address.select(rows[0] if rows else None)


# --- Differences ----------------------------------------------------------------------------------


def _differences(sight: Sight) -> None:
    page = sight.page
    found = [
        Block("item", f"{KINDS[item.kind]}: {item.words}{_evidence(item)}", box=sight.row_of_difference(item))
        for item in page.differences
    ]
    hints = [Block("item", hint.words) for hint in page.hints]
    title = f"{plural(len(found), 'difference')}, gravest first" if found else "No differences"
    nothing = [Block("paragraph", "none known" if found else "both sides agree")]
    columns = [(title, found or nothing), ("Likely cause", hints or nothing)]
    show_columns("review differences", columns, sight.selected, lambda: _select("review differences"))
    parts = ", ".join(f"{name} {significant(part)}" for name, part in page.parts.items())
    st.caption(plain(f"Score {significant(page.score)}{f' = {parts}' if parts else ''}"))


def _evidence(item: Difference) -> str:
    iou = item.evidence.get("iou")
    return f", IoU {iou:.3g}" if isinstance(iou, float) else ""


# --- Text -----------------------------------------------------------------------------------------


def _text(sight: Sight) -> None:
    if not sight.results:
        st.caption("Neither side has a text on record.")
        return
    lines = list(_lines(sight))
    differing = [line for line in lines if line.left != line.right]
    head, switch = st.columns([4, 1], vertical_alignment="center")
    head.caption(
        f"{len(differing)} of {plural(len(lines), 'block')} differ; {SIDES[0]} only is struck through, "
        f"{SIDES[1]} only is underlined. A click selects the box."
    )
    only = switch.toggle("Only what differs", key="review only", persist_state="session")
    show_aligned(
        "review aligned", _titles(sight), differing if only else lines, sight.selected,
        lambda: _select("review aligned"),
    )  # fmt: skip


def _titles(sight: Sight) -> tuple[str, str]:
    return f"{SIDES[0]} {sight.review.a.name}", f"{SIDES[1]} {sight.review.b.name}"


def _lines(sight: Sight) -> Iterator[Aligned]:
    """The text outside of blocks where it differs, then block beside block in A's order."""
    outside = [block for block in sight.page.blocks if block.pair is None]
    for block in outside:
        yield Aligned("outside of blocks", *_compared(block.text_a, block.text_b))
    if not sight.rows and not outside:
        text = next(iter(sight.results)).text_raw
        yield Aligned("no blocks", [(text, "same")], [(text, "same")])
    for number, row in enumerate(sight.rows):
        left, right = (box.text if box else None for box in (row.ours, row.vendor))
        if left is not None and right is not None:
            yield Aligned(_caption(row), *_compared(left, right), box=number)
        else:
            runs: list[Runs | None] = [
                None if text is None else [(text, side)] for text, side in ((left, "ours"), (right, "vendor"))
            ]
            yield Aligned(_caption(row), *runs, box=number)


def _caption(row: Pairing) -> str:
    shown = row.ours or row.vendor
    assert shown is not None
    state = {"only_ours": f"only {SIDES[0]}", "only_vendor": f"only {SIDES[1]}", "single": ""}.get(
        row.state, row.state
    )
    labels = dict.fromkeys(box.label for box in (row.ours, row.vendor) if box)
    named = f"#{shown.index + 1} {' → '.join(labels)}"
    return named if state in ("matched", "") else f"{named}, {state}"


def _compared(left: str, right: str) -> tuple[Runs, Runs]:
    if left == right:
        return [(left, "same")], [(right, "same")]
    runs = word_difference(left[:_MOST_WORDS], right[:_MOST_WORDS])
    ours: Runs = [run for run in runs if run[1] != "vendor"]
    vendor: Runs = [run for run in runs if run[1] != "ours"]
    for of, text in ((ours, left), (vendor, right)):
        if text[_MOST_WORDS:]:
            of.append((text[_MOST_WORDS:], "same"))
    return ours, vendor


# --- Boxes, Tokens, Inputs ------------------------------------------------------------------------


def _boxes(sight: Sight) -> None:
    details.draw_boxes(sight.results, sight.page.report, sight.rows, sight.selected, _select, SIDES)


def _tokens(sight: Sight) -> None:
    a, b = sight.detail.result_a, sight.detail.result_b
    if not (a and b and a.token_ids and b.token_ids):
        st.caption("The tokens of both sides are not on record: there is nothing to lay beside each other.")
        return
    parting = sight.detail.divergence
    if parting is None:
        st.caption(f"All {plural(len(a.token_ids), 'token')} are equal.")
        return
    row = sight.row_of(parting.box_a, None) if parting.box_a is not None else None
    where = "before the first box" if row is None else f"in box {(parting.box_a or 0) + 1} of {SIDES[0]}"
    st.caption(
        f"The tokens part at step {parting.index} of {len(a.token_ids):,} and {len(b.token_ids):,}, {where}; "
        f"{_why(sight, min(len(a.token_ids), len(b.token_ids)))}."
    )
    st.dataframe(
        step_table(parting.a, parting.b), hide_index=True, height="content", placeholder="",
        column_config={"step": st.column_config.NumberColumn(width=60)},
    )  # fmt: skip


def _why(sight: Sight, tokens: int) -> str:
    """Whether rounding alone can have parted the sides; `tokens` are those of the shorter one."""
    report = sight.page.report
    parting = report.first_divergence if report else None
    return parting_words(parting, tokens, SIDES) if parting else NOT_RECORDED


def step_table(a: tuple[Step, ...], b: tuple[Step, ...]) -> pd.DataFrame:
    """The tokens around the first divergence, step by step on both sides; ✗ where they are not the same.

    A side that recorded no logits has no column for them.
    """
    sides = {SIDES[0]: {step.index: step for step in a}, SIDES[1]: {step.index: step for step in b}}
    rows = []
    for number in sorted({*sides[SIDES[0]], *sides[SIDES[1]]}):
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


def _layers(sight: Sight) -> None:
    request = sight.results[0].request if sight.results else None
    layers_tab.draw_recorded(
        sight.page.name, request, "review layers",
        "Compare has the button; `python -m dsocr_core trace PAGE --save` does the same.",
    )  # fmt: skip


def _inputs(sight: Sight) -> None:
    lines = sight.page.inputs
    if not lines:
        st.caption("What went into the models cannot be compared: one side has nothing on record.")
        return
    st.caption("✓ equal, ✗ different, – different in a line that decides nothing, ? not recorded on a side.")
    st.dataframe(
        pd.DataFrame(
            {
                "mark": [_MARKS[line.mark] for line in lines],
                "input": [line.name for line in lines],
                SIDES[0]: [line.a for line in lines],
                SIDES[1]: [line.b for line in lines],
            }
        ),
        hide_index=True, height="content", column_config={"mark": st.column_config.Column(width=50)},
    )  # fmt: skip


# --- Timings, Accuracy ----------------------------------------------------------------------------


def _timings(sight: Sight) -> None:
    a, b = sight.detail.result_a, sight.detail.result_b
    spans = tables.timing_spans([result for result in sight.results if result.timings])
    if spans.empty:
        st.caption("No times of this page are on record.")
        return
    names = dict(zip(("ours", "vendor"), _titles(sight), strict=True))
    spans["road"] = spans["road"].map(names)
    st.caption(
        "This page, one run of each side (n = 1). Vision lies inside prefill. All pages: Whole review."
    )
    st.plotly_chart(charts.stage_bars(spans), key="review stage bars", config={"displayModeBar": False})
    st.dataframe(tables.timing_table(a, b, SIDES), hide_index=True, height="content")


def _accuracy(sight: Sight) -> None:
    st.text_input(
        "More ground truth", key=key("truth"), placeholder="path of a JSON file",
        help="As data/samples/ground_truth.json or as OmniDocBench writes it; the samples' own is known.",
    )  # fmt: skip
    try:
        path = typed_path(value("truth"), resources.allowed_roots()) if value("truth").strip() else None
        truth = resources.truth(path)
        _accuracies(sight, truth, str(path or ""))
    except DsocrError as error:
        show_error(error)


def _accuracies(sight: Sight, truth: Truth, path: str) -> None:
    known = page_truth(truth, sight.page)
    if known is None:
        st.caption("No ground truth is known of this page (it is found by the page's name and size).")
    else:
        here = {
            name: accuracy(side, known)
            for name, side in zip(SIDES, (sight.page.a, sight.page.b), strict=True)
        }
        st.caption(f"This page, against {plural(len(known.blocks), 'true block')}:")
        st.dataframe(accuracy_table({name: _measures(one) for name, one in here.items()}), hide_index=True)
    means = resources.mean_accuracy(sight.review, sight.review.key, truth, path)
    counted = {name: means[name.lower()] for name in SIDES}
    if any(values["pages"] for values in counted.values()):
        pages = ", ".join(f"{name} {int(values['pages'] or 0):,}" for name, values in counted.items())
        st.caption(f"Means over the pages whose truth is known ({pages}):")
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
