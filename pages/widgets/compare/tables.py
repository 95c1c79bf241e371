"""What the tabs show, as DataFrames. Pure: results in, tables out."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dsocr_core.parity_records import Box, ParityReport
from dsocr_core.records import ModelInputs, OcrResult, TopTwo
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.shared.formats import NOT_MEASURED, NOT_RECORDED, duration, speed_ratio

STATE_WORDS = {
    "matched": "matched",
    "moved": "moved",
    "relabelled": "relabelled",
    "only_a": "only ours",
    "only_b": "only vendor",
    "single": "not compared",
}


def _corners(box: Box | None) -> str:
    return "" if box is None else f"{box.x1}, {box.y1}, {box.x2}, {box.y2}"


Sides = tuple[str, str]
BACKENDS: Sides = ("a", "b")


def box_table(
    pairs: list[tuple[str, Box | None, Box | None, float | None, float | None]], sides: Sides = BACKENDS
) -> pd.DataFrame:
    """One row a pair: (state, ours, vendor, iou, shift percent). `sides` are the names of ours and vendor."""
    left, right = sides
    states = STATE_WORDS | {"only_a": f"only {left}", "only_b": f"only {right}"}
    rows = []
    for number, (state, ours, vendor, iou, shift) in enumerate(pairs, start=1):
        shown = ours or vendor
        rows.append(
            {
                "#": number,
                "state": states[state],
                "label": shown.label if shown else "",
                f"{left} x1, y1, x2, y2 (px)": _corners(ours),
                f"{right} x1, y1, x2, y2 (px)": _corners(vendor),
                "IoU": iou,
                "shift (%)": shift,
                f"{left} text": ours.text if ours else "",
                f"{right} text": vendor.text if vendor else "",
            }
        )
    columns = [
        "#", "state", "label", f"{left} x1, y1, x2, y2 (px)", f"{right} x1, y1, x2, y2 (px)",
        "IoU", "shift (%)", f"{left} text", f"{right} text",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def token_table(ours: OcrResult | None, vendor: OcrResult | None) -> pd.DataFrame:
    """One row a new token: id and text in both backends, and whether they agree."""
    backends = {"a": ours, "b": vendor}
    length = max((len(result.token_ids) for result in backends.values() if result), default=0)
    columns: dict[str, list[object]] = {"step": list(range(length))}
    for backend, result in backends.items():
        if result is None:
            continue
        ids: list[object] = list(result.token_ids)
        texts: list[object] = [repr(text)[1:-1] for text in result.token_texts] or [NOT_MEASURED] * len(ids)
        columns[f"{backend} id"] = ids + [None] * (length - len(ids))
        columns[f"{backend} text"] = texts[:length] + [""] * (length - len(texts))
    table = pd.DataFrame(columns)
    for backend, result in backends.items():
        if result is not None:
            table[f"{backend} id"] = table[f"{backend} id"].astype("Int64")
    if ours is not None and vendor is not None:
        same = (table["ours id"] == table["vendor id"]).fillna(False)
        table["same"] = same.map({True: "✓", False: "✗"})
    return table


def best_table(tops: dict[str, TopTwo | None], results: Sequence[OcrResult]) -> pd.DataFrame:
    """A row a backend: the token chosen at a step and the runner-up, each with its logit, and the margin."""
    texts = {
        token: text
        for result in results
        for token, text in zip(result.token_ids, result.token_texts, strict=False)
    }
    rows = []
    for backend, top in tops.items():
        row: dict[str, str] = {"backend": backend}
        for place, name in enumerate(("chosen", "runner-up")):
            row[name] = f"{top.ids[place]} {repr(texts.get(top.ids[place], ''))[1:-1]}".strip() if top else ""
            row[f"{name} logit"] = f"{top.logits[place]:.7g}" if top else NOT_RECORDED
        rows.append(row | {"margin": f"{top.margin:.4g}" if top else NOT_RECORDED})
    return pd.DataFrame(rows)


def around(table: pd.DataFrame, step: int, before: int = 12, after: int = 20) -> pd.DataFrame:
    """The rows around one step."""
    return table.iloc[max(step - before, 0) : step + after + 1]


def input_table(report: ParityReport) -> pd.DataFrame:
    """Input parity, one line a fact: ✓ equal, ✗ different, – different where that is no matter."""
    return pd.DataFrame(
        {
            "same": ["✓" if line.equal else "✗" if line.decides else "–" for line in report.inputs],
            "input": [line.name for line in report.inputs],
            "a": [line.a for line in report.inputs],
            "b": [line.b for line in report.inputs],
        }
    )


def single_input_table(inputs: ModelInputs) -> pd.DataFrame:
    """What went into the model on the only backend that ran."""
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


def timing_spans(results: list[OcrResult]) -> pd.DataFrame:
    """One row a measured stage with where its bar begins: columns backend, stage, start_ms, ms, inside.

    Top-level stages follow one another. Vision stages lie inside prefill: their bars begin where
    prefill's begins and follow one another there.
    """
    rows: list[dict[str, object]] = []
    for result in results:
        clock = 0.0
        for stage in Stage:
            if stage in INSIDE_PREFILL:
                continue
            spent = result.milliseconds(stage)
            if stage is Stage.PREFILL:
                inner = clock
                for part in INSIDE_PREFILL:
                    part_ms = result.milliseconds(part)
                    if part_ms is not None:
                        rows.append(_span(result, part, inner, part_ms, inside=True))
                        inner += part_ms
            if spent is not None:
                rows.append(_span(result, stage, clock, spent, inside=False))
                clock += spent
    return pd.DataFrame(rows, columns=["backend", "stage", "start_ms", "ms", "inside"])


def _span(result: OcrResult, stage: Stage, start_ms: float, ms: float, inside: bool) -> dict[str, object]:
    return {"backend": result.backend, "stage": stage.value, "start_ms": start_ms, "ms": ms, "inside": inside}


def timing_table(ours: OcrResult | None, vendor: OcrResult | None, sides: Sides = BACKENDS) -> pd.DataFrame:
    """Every stage with its time in both backends; a stage nobody measured says so."""
    rows = []
    for stage in Stage:
        name = f"prefill › {stage.value}" if stage in INSIDE_PREFILL else stage.value
        ours_ms = ours.milliseconds(stage) if ours else None
        vendor_ms = vendor.milliseconds(stage) if vendor else None
        rows.append(_timing_row(name, sides, ours_ms, vendor_ms))
    ours_total = ours.total_ms if ours else None
    vendor_total = vendor.total_ms if vendor else None
    rows.append(_timing_row("total", sides, ours_total, vendor_total))
    table = pd.DataFrame(rows)
    absent = [side for side, result in zip(sides, (ours, vendor), strict=True) if result is None]
    return table.drop(columns=[*absent, f"{sides[0]} is"] if absent else [])


def _timing_row(name: str, sides: Sides, ours_ms: float | None, vendor_ms: float | None) -> dict[str, str]:
    left, right = sides
    return {
        "stage": name,
        left: duration(ours_ms),
        right: duration(vendor_ms),
        f"{left} is": speed_ratio(ours_ms, vendor_ms),
    }
