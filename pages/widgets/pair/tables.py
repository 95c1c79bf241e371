"""Two results, A and B, as tables. Pure: results in, DataFrames out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import pandas as pd

from dsocr_core.models.family import all_stages, inside_prefill
from dsocr_core.reading.margins import FRACTION_BITS, ulp
from dsocr_core.reading.parity_records import NOT_KNOWN, InputLine
from dsocr_core.reading.records import SIDES, ModelInputs, OcrResult, Side, TopTwo
from pages.widgets.pair.shown import Pairing, Results
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.stages import Part, spans
from pages.widgets.shared.table import Column

STATE_WORDS = {
    "matched": "matched", "moved": "moved", "relabelled": "relabelled", "text": "text differs",
    "only_a": "only A", "only_b": "only B", "single": "not compared",
}  # fmt: skip

# --- boxes ----------------------------------------------------------------------------------------

BOXES = {
    "#": Column("#", width=45), "state": Column("state"), "label": Column("label"),
    **{name: Column(name) for name in ("A x1, y1, x2, y2 (px)", "B x1, y1, x2, y2 (px)")},
    "IoU": Column("IoU", "%.3f"), "shift (%)": Column("shift (%)", "%.2f"),
    "A text": Column("A text"), "B text": Column("B text"),
}  # fmt: skip
"""Columns of `box_table`."""


def box_table(rows: Iterable[Pairing]) -> pd.DataFrame:
    """One row a pair, numbered from one."""
    found = []
    for number, row in enumerate(rows, start=1):
        shown = row.a or row.b
        record = {"#": number, "state": STATE_WORDS[row.state], "label": shown.label if shown else "",
                  "IoU": row.iou, "shift (%)": row.shift_percent}  # fmt: skip
        for side in SIDES:
            letter, box = side_letter(side), row.box(side)
            record[f"{letter} x1, y1, x2, y2 (px)"] = f"{box.x1}, {box.y1}, {box.x2}, {box.y2}" if box else ""
            record[f"{letter} text"] = box.text if box else ""
        found.append(record)
    return pd.DataFrame(found, columns=list(BOXES))


# --- tokens ---------------------------------------------------------------------------------------


def token_table(results: Results) -> pd.DataFrame:
    """One row a new token: id, text and the margin of the best logit on each side, and a mark of equality.

    The margin also in ULP of the coarser number type, at the larger logit of the step: those of both sides
    add up to the ULP of a divergence. A side that recorded no logits has no column for them.
    """
    length = max((len(result.token_ids or ()) for result in results.values()), default=0)
    columns: dict[str, object] = {"step": list(range(length))}
    ids: dict[Side, pd.Series[int]] = {}
    coarsest = next((name for name in FRACTION_BITS if name in _dtypes(results)), None)
    steps = zip_longest(*(result.top_two for result in results.values() if result.top_two))
    units = []
    if coarsest is not None:
        largest = (max(abs(logit) for top in tops if top for logit in top.logits) for tops in steps)
        units = [ulp(logit, coarsest) for logit in largest]
    for side, result in results.items():
        letter, tokens = side_letter(side), list(result.token_ids or ())
        texts = [repr(text)[1:-1] for text in result.token_texts] or [NOT_KNOWN] * len(tokens)
        ids[side] = pd.Series([*tokens, *[None] * (length - len(tokens))], dtype="Int64")
        columns[f"{letter} id"] = ids[side]
        columns[f"{letter} text"] = [*texts[:length], *[""] * (length - len(texts))]
        if result.top_two:
            margins = [top.margin for top in result.top_two[:length]]
            columns[f"{letter} margin"] = [*margins, *[None] * (length - len(margins))]
            if coarsest is not None:
                found = [margin / unit for margin, unit in zip(margins, units, strict=False)]
                columns[f"{letter} ULP ({coarsest})"] = [*found, *[None] * (length - len(found))]
    table = pd.DataFrame(columns)
    if all(side in ids and results[side].token_ids for side in SIDES):
        same = (ids["a"] == ids["b"]).fillna(False)
        table["same"] = same.map({True: "✓", False: "✗"})
    return table


def _dtypes(results: Results) -> set[str]:
    return {result.inputs.dtype for result in results.values() if result.inputs}


BEST = {
    "side": Column("side"), "chosen": Column("chosen"), "chosen logit": Column("chosen logit", "%.7g"),
    "runner-up": Column("runner-up"), "runner-up logit": Column("runner-up logit", "%.7g"),
    "margin": Column("margin", "%.4g"),
}  # fmt: skip
"""Columns of `best_table`."""


def best_table(tops: Mapping[Side, TopTwo | None], results: Iterable[OcrResult]) -> pd.DataFrame:
    """A row a side: the token chosen at a step and the runner-up, each with its logit, and the margin."""
    texts = {
        token: text
        for result in results
        for token, text in zip(result.token_ids or (), result.token_texts, strict=False)
    }
    rows = []
    for side, top in tops.items():
        row: dict[str, object] = {"side": side_letter(side), "margin": top.margin if top else None}
        for rank, name in enumerate(("chosen", "runner-up")):
            row[name] = f"{top.ids[rank]} {repr(texts.get(top.ids[rank], ''))[1:-1]}".strip() if top else None
            row[f"{name} logit"] = top.logits[rank] if top else None
        rows.append(row)
    return pd.DataFrame(rows, columns=list(BEST))


# --- inputs ---------------------------------------------------------------------------------------

INPUT_MARKS = "✓ equal, ✗ different, – different in a line that decides nothing, ? not known on a side."
INPUTS = {"same": Column("same", width=50), **{name: Column(name) for name in ("input", "A", "B")}}
"""Columns of `input_table`."""


def input_table(lines: Sequence[InputLine]) -> pd.DataFrame:
    """Input parity, one line a fact, with the marks of INPUT_MARKS."""
    marks = {"equal": "✓", "differs": "✗"}
    return pd.DataFrame(
        {
            "same": [
                "–" if line.state == "differs" and not line.decides else marks.get(line.state, "?")
                for line in lines
            ],
            "input": [line.name for line in lines],
            "A": [NOT_KNOWN if line.a is None else line.a for line in lines],
            "B": [NOT_KNOWN if line.b is None else line.b for line in lines],
        }
    )


def single_input_table(inputs: ModelInputs) -> pd.DataFrame:
    """List what went into the model on the only side that has a result."""
    facts = {
        "prompt tokens": f"{len(inputs.prompt_ids)}",
        "image tokens": f"{inputs.image_token_count}",
        "grid (columns, rows)": f"{inputs.grid[0]}, {inputs.grid[1]}",
        "global view": f"{list(inputs.global_shape)}",
        "global view SHA-256": inputs.global_sha256,
        "tiles": f"{list(inputs.tiles_shape)}",
        "tiles SHA-256": inputs.tiles_sha256,
        "no-repeat n-gram size": f"{inputs.no_repeat_ngram_size}",
        "max new tokens": f"{inputs.max_new_tokens}",
        "attention": inputs.attention,
        "dtype": inputs.dtype,
        "rotary frequencies": inputs.rotary_dtype,
    }
    return pd.DataFrame({"input": list(facts), "value": list(facts.values())})


# --- times ----------------------------------------------------------------------------------------


def stage_parts(result: OcrResult) -> list[Part]:
    """The measured stages of a result in the order of running, in seconds."""
    return [
        (stage.value, spent / 1e3, stage in inside_prefill(), "")
        for stage in all_stages()
        if (spent := result.milliseconds(stage)) is not None
    ]


def timing_spans(results: Results) -> pd.DataFrame:
    """One row a measured stage with where its bar begins: side, backend, stage, start_ms, ms, inside."""
    rows = [
        (side_letter(side), result.backend, stage, 1e3 * start, 1e3 * spent, inside)
        for side, result in results.items()
        for start, (stage, spent, inside, _) in spans(stage_parts(result))
    ]
    return pd.DataFrame(rows, columns=["side", "backend", "stage", "start_ms", "ms", "inside"])
