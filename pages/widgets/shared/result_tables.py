"""Two results, A and B, as tables. Pure: results in, DataFrames out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from dsocr_core.models.family import all_stages, inside_prefill
from dsocr_core.parity_records import NOT_KNOWN, InputLine
from dsocr_core.records import SIDES, ModelInputs, OcrResult, Side, TopTwo
from dsocr_core.stages import Stage
from dsocr_core.words import NOT_RECORDED, duration
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.pairing import Pairing

STATE_WORDS = {
    "matched": "matched",
    "moved": "moved",
    "relabelled": "relabelled",
    "only_a": "only A",
    "only_b": "only B",
    "single": "not compared",
}
Results = Mapping[Side, OcrResult]
"""The results that are there, A's first."""


# --- boxes ----------------------------------------------------------------------------------------


def box_table(rows: Iterable[Pairing]) -> pd.DataFrame:
    """One row a pair, numbered from one."""
    found = []
    for number, row in enumerate(rows, start=1):
        shown = row.a or row.b
        corners = {f"{side_letter(side)} x1, y1, x2, y2 (px)": _corners(row, side) for side in SIDES}
        texts = {f"{side_letter(side)} text": box.text if (box := row.box(side)) else "" for side in SIDES}
        found.append(
            {"#": number, "state": STATE_WORDS[row.state], "label": shown.label if shown else ""}
            | corners
            | {"IoU": row.iou, "shift (%)": row.shift_percent}
            | texts
        )
    letters = [side_letter(side) for side in SIDES]
    columns = [
        "#", "state", "label", *(f"{letter} x1, y1, x2, y2 (px)" for letter in letters), "IoU", "shift (%)",
        *(f"{letter} text" for letter in letters),
    ]  # fmt: skip
    return pd.DataFrame(found, columns=columns)


def _corners(row: Pairing, side: Side) -> str:
    box = row.box(side)
    return "" if box is None else f"{box.x1}, {box.y1}, {box.x2}, {box.y2}"


# --- tokens ---------------------------------------------------------------------------------------


def token_count(result: OcrResult) -> int:
    """New tokens of a result; 0 where its backend does not tell."""
    return len(result.token_ids or ())


def token_table(results: Results) -> pd.DataFrame:
    """One row a new token: id, text and the margin of the best logit on each side, and a mark of equality.

    A side that recorded no logits has no column for them.
    """
    length = max((token_count(result) for result in results.values()), default=0)
    columns: dict[str, object] = {"step": list(range(length))}
    ids: dict[Side, pd.Series[int]] = {}
    for side, result in results.items():
        letter, tokens = side_letter(side), list(result.token_ids or ())
        texts = [repr(text)[1:-1] for text in result.token_texts] or [NOT_KNOWN] * len(tokens)
        ids[side] = pd.Series([*tokens, *[None] * (length - len(tokens))], dtype="Int64")
        columns[f"{letter} id"] = ids[side]
        columns[f"{letter} text"] = [*texts[:length], *[""] * (length - len(texts))]
        if result.top_two:
            margins = [top.margin for top in result.top_two[:length]]
            columns[f"{letter} margin"] = [*margins, *[None] * (length - len(margins))]
    table = pd.DataFrame(columns)
    if all(side in ids and token_count(results[side]) for side in SIDES):
        same = (ids["a"] == ids["b"]).fillna(False)
        table["same"] = same.map({True: "✓", False: "✗"})
    return table


def best_table(tops: Mapping[Side, TopTwo | None], results: Iterable[OcrResult]) -> pd.DataFrame:
    """A row a side: the token chosen at a step and the runner-up, each with its logit, and the margin."""
    texts = {
        token: text
        for result in results
        for token, text in zip(result.token_ids or (), result.token_texts, strict=False)
    }
    rows = []
    for side, top in tops.items():
        row: dict[str, str] = {"side": side_letter(side)}
        for rank, name in enumerate(("chosen", "runner-up")):
            row[name] = f"{top.ids[rank]} {repr(texts.get(top.ids[rank], ''))[1:-1]}".strip() if top else ""
            row[f"{name} logit"] = f"{top.logits[rank]:.7g}" if top else NOT_RECORDED
        rows.append(row | {"margin": f"{top.margin:.4g}" if top else NOT_RECORDED})
    return pd.DataFrame(rows)


def around(table: pd.DataFrame, step: int, before: int = 12, after: int = 20) -> pd.DataFrame:
    """The rows around one step."""
    return table.iloc[max(step - before, 0) : step + after + 1]


# --- inputs ---------------------------------------------------------------------------------------


INPUT_MARKS = "✓ equal, ✗ different, – different in a line that decides nothing, ? not known on a side."


def input_table(lines: Sequence[InputLine]) -> pd.DataFrame:
    """Input parity, one line a fact, with the marks of INPUT_MARKS."""
    return pd.DataFrame(
        {
            "same": [_mark(line) for line in lines],
            "input": [line.name for line in lines],
            "A": [NOT_KNOWN if line.a is None else line.a for line in lines],
            "B": [NOT_KNOWN if line.b is None else line.b for line in lines],
        }
    )


def _mark(line: InputLine) -> str:
    if line.state == "differs":
        return "✗" if line.decides else "–"
    return "✓" if line.state == "equal" else "?"


def single_input_table(inputs: ModelInputs) -> pd.DataFrame:
    """What went into the model on the only side that has a result."""
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


def timing_spans(results: Results) -> pd.DataFrame:
    """One row a measured stage with where its bar begins: side, backend, stage, start_ms, ms, inside.

    Top-level stages follow one another. Vision stages lie inside prefill: their bars begin where
    prefill's begins and follow one another there.
    """
    rows: list[dict[str, object]] = []
    for side, result in results.items():
        clock = 0.0
        for stage in all_stages():
            if stage in inside_prefill():
                continue
            spent = result.milliseconds(stage)
            if stage == Stage.PREFILL:
                inner = clock
                for part in inside_prefill():
                    part_ms = result.milliseconds(part)
                    if part_ms is not None:
                        rows.append(_span(side, result, part, inner, part_ms, inside=True))
                        inner += part_ms
            if spent is not None:
                rows.append(_span(side, result, stage, clock, spent, inside=False))
                clock += spent
    return pd.DataFrame(rows, columns=["side", "backend", "stage", "start_ms", "ms", "inside"])


def _span(
    side: Side, result: OcrResult, stage: Stage, start_ms: float, ms: float, inside: bool
) -> dict[str, object]:
    return {
        "side": side_letter(side), "backend": result.backend, "stage": stage.value, "start_ms": start_ms,
        "ms": ms, "inside": inside,
    }  # fmt: skip


def timing_table(results: Results) -> pd.DataFrame:
    """Every stage with its time on each side, of one pass each: no ratio is made of these."""
    times: dict[str, dict[Side, float | None]] = {}
    for stage in all_stages():
        name = f"prefill › {stage.value}" if stage in inside_prefill() else stage.value
        times[name] = {side: result.milliseconds(stage) for side, result in results.items()}
    times["total"] = {side: result.total_ms or None for side, result in results.items()}
    rows = []
    for name, spent in times.items():
        rows.append({"stage": name} | {side_letter(side): duration(ms) for side, ms in spent.items()})
    return pd.DataFrame(rows)
