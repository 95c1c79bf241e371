"""The tab Differences: what is about the whole page, one table of blocks, the first different token."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import NOT_RECORDED, plural
from dsocr_core.reading.margins import divergence_words
from dsocr_core.reading.parity_records import SETTINGS, Divergence
from dsocr_core.reading.records import SIDES, OcrResult
from pages.widgets.pair.shown import PairView, Row
from pages.widgets.pair.viewer import clicked
from pages.widgets.shared import table
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

_STATUS = {
    "matched": "matched", "moved": "moved", "relabelled": "relabelled", "text": "text differs",
    "only_a": "only A", "only_b": "only B", "single": "not compared",
}  # fmt: skip
BLOCKS = {
    "#": Column("#", width=45), "status": Column("status"), "label": Column("label"),
    "A text": Column("A reads"), "B text": Column("B reads"), "page": Column("the page says"),
    "IoU": Column("IoU", "%.3f"), "shift (%)": Column("shift (%)", "%.2f"),
    **{name: Column(name) for name in ("A x1, y1, x2, y2 (px)", "B x1, y1, x2, y2 (px)")},
}  # fmt: skip
_FEW = 12
"""Rows of a table that does not scroll."""


def draw(shown: PairView) -> None:
    """Draw the blocks that differ, or all of them; a click on a row selects its box in the viewer."""
    report = shown.report
    for item in report.differences if report else shown.comparison.differences:
        if not item.where.boxes_a and not item.where.boxes_b and item.kind not in SETTINGS:
            st.caption(plain(f"{item.sentence[:1].upper()}{item.sentence[1:]}"))
    for words in _malformed(shown):
        st.caption(plain(words))
    if shown.rows:
        _blocks(shown)
    elif not shown.results:
        st.caption("Neither side has a result.")
    elif all(not result.boxes for result in shown.results.values()):
        st.caption("No boxes on this page. The prompt *Markdown with boxes* asks for them.")
    if report is not None and report.first_divergence is not None:
        _divergence(shown, report.first_divergence)


def _blocks(shown: PairView) -> None:
    """The table; its rows have numbers of their own, as it may leave some out."""
    key = f"{shown.prefix}blocks"
    words, switch = st.columns([5, 1], vertical_alignment="center")
    count, misread = len(shown.rows), shown.misread_by_both
    said = (
        f"{len(shown.differing)} of {plural(count, 'block')} differ"
        if shown.report
        else plural(count, "block")
    )
    words.caption(f"{said}; {misread} of {count} are misread by both sides." if misread else f"{said}.")
    every = switch.toggle("All blocks", key=f"{shown.prefix}all blocks", persist_state="session")
    numbers = list(range(count)) if every or not shown.report else sorted(shown.differing)
    if not numbers:
        return
    at = numbers.index(shown.selected) if shown.selected in numbers else None

    def select() -> None:
        row = clicked(key)
        shown.select(numbers[row] if row is not None and row < len(numbers) else None)

    table.draw(
        block_table(shown, numbers), BLOCKS, "", _FEW, key=key, selection_mode="single-row", on_select=select,
        selection_default={"selection": {"rows": [] if at is None else [at]}},
    )  # fmt: skip


def block_table(shown: PairView, numbers: Collection[int] | None = None) -> pd.DataFrame:
    """A row a pair of blocks, numbered from one; `numbers` are those to show, all unless given."""
    rows = [_block(shown, number, shown.rows[number]) for number in numbers or range(len(shown.rows))]
    frame = pd.DataFrame(rows, columns=list(BLOCKS))
    return frame if shown.truth else frame.drop(columns="page")


def _block(shown: PairView, number: int, row: Row) -> dict[str, object]:
    found: dict[str, object] = {
        "#": number + 1, "status": _STATUS[row.state], "label": row.box.label, "IoU": row.iou,
        "shift (%)": row.shift_percent, "page": block.text if (block := shown.true_block(row)) else "",
    }  # fmt: skip
    for side in SIDES:
        letter, box = side_letter(side), row.of(side)
        found[f"{letter} x1, y1, x2, y2 (px)"] = f"{box.x1}, {box.y1}, {box.x2}, {box.y2}" if box else ""
        found[f"{letter} text"] = box.text if box else ""
    return found


def _malformed(shown: PairView) -> Iterable[str]:
    """Name what began like a block and could not be read."""
    for side, result in shown.results.items():
        for span in result.blocks:
            if span.malformed is not None:
                yield f"{side_letter(side)}: {span.label[:80]} could not be read: {span.malformed}"


def _divergence(shown: PairView, divergence: Divergence) -> None:
    """Show where the tokens diverge, after which text, and how far apart the two best candidates were."""
    counts = [len(result.token_ids or ()) for result in shown.results.values()]
    row = None if divergence.box_a is None else shown.row_of(divergence.box_a, None)
    where = "before the first box" if row is None else f"box {(divergence.box_a or 0) + 1} of A"
    of = " and ".join(f"{count:,}" for count in counts)
    st.caption(
        f"First different token: {divergence.index:,} of {of} ({where}); "
        f"{divergence_words(divergence, min(counts))}. Text before it:"
    )
    st.code(divergence.context[-300:] or "(the start)", language=None, wrap_lines=True)
    if divergence.margins is not None:
        table.draw(candidates(divergence, shown.results.values()), CANDIDATES, NOT_RECORDED)


CANDIDATES = {
    "side": Column("side"), "chosen": Column("chosen token"), "chosen logit": Column("its logit", "%.7g"),
    "runner-up": Column("runner-up"), "runner-up logit": Column("its logit", "%.7g"),
    "margin": Column("margin", "%.4g"),
}  # fmt: skip


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
        row: dict[str, object] = {"side": side_letter(side), "margin": top.margin if top else None}
        for rank, name in enumerate(("chosen", "runner-up")):
            row[name] = f"{top.ids[rank]} {repr(texts.get(top.ids[rank], ''))[1:-1]}".strip() if top else None
            row[f"{name} logit"] = top.logits[rank] if top else None
        rows.append(row)
    return pd.DataFrame(rows, columns=list(CANDIDATES))
