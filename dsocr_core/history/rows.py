"""What a backend gave on a page as rows of the history's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dsocr_core.markup import Box
from dsocr_core.outputs.parity_row import parity_figures
from dsocr_core.outside.visible import encodable, name_text
from dsocr_core.parity_records import ParityReport
from dsocr_core.records import OcrResult, PageFile, to_jsonable
from dsocr_core.stages import INSIDE_PREFILL

Row = Mapping[str, Any]


def result_rows(page: str, result: OcrResult, file: PageFile | None) -> dict[str, list[Row]]:
    """A result's rows by table. `file` is what the page's file held."""
    rows: dict[str, list[Row]] = {
        "images": [_image_row(page, result, file)],
        "stage_timings": [
            {
                "page": page,
                "backend": result.backend,
                "stage": timing.stage.value,
                "milliseconds": timing.milliseconds,
                "calls": timing.calls,
                "inside_prefill": timing.stage in INSIDE_PREFILL,
                "aggregate": "page",
            }
            for timing in result.timings
        ],
        "boxes": box_rows(page, result.backend, result.boxes),
        "inputs": [_inputs_row(page, result)],
        "page_facts": [{"page": page, "backend": result.backend, "facts": _facts(result)}],
    }
    if result.token_ids is not None:
        rows["tokens"] = [{"page": page, "backend": result.backend, "token_ids": list(result.token_ids)}]
    if result.token_texts or result.top_two:
        rows["steps"] = [_steps_row(page, result)]
    return rows


def box_rows(page: str, backend: str, boxes: Sequence[Box]) -> list[Row]:
    """The boxes of a page."""
    return [
        {
            "page": page,
            "backend": backend,
            "number": box.index,
            "label": box.label,
            "x1": float(box.x1),
            "y1": float(box.y1),
            "x2": float(box.x2),
            "y2": float(box.y2),
            "text": box.text,
        }
        for box in boxes
    ]


def parity_row(page: str, report: ParityReport) -> Row:
    """What two results of a page have in common."""
    return parity_figures(report) | {
        "page": page,
        "boxes_a": report.boxes_a,
        "boxes_b": report.boxes_b,
        "boxes_matched": report.boxes_matched,
        "mean_coordinate_difference_percent": report.mean_coordinate_difference_percent,
    }


def not_compared_row(page: str, reasons: Sequence[str]) -> Row:
    """The parity row of a page of which a side has no result, and why."""
    return parity_figures(None, reasons) | {"page": page}


def _image_row(page: str, result: OcrResult, file: PageFile | None) -> Row:
    request, inputs = result.request, result.inputs
    return {
        "page": page,
        "source": request.name,
        "path": name_text(request.image),
        "width": result.image_size[0],
        "height": result.image_size[1],
        "bytes": file and file.bytes,
        "sha256": file and file.sha256,
        "preset": request.told("preset"),
        "grid_columns": inputs.grid[0] if inputs else None,
        "grid_rows": inputs.grid[1] if inputs else None,
        "prompt_tokens": len(inputs.prompt_ids) if inputs else None,
        "new_tokens": result.new_tokens,
        "finish_reason": result.finish_reason,
        "backend": result.backend,
        "text_raw": result.text_raw,
    }


def _inputs_row(page: str, result: OcrResult) -> Row:
    """The prompt is known of every result; the rest where the backend can tell."""
    inputs = result.inputs
    row = {"page": page, "backend": result.backend, "prompt": result.request.told("prompt")}
    if inputs is None:
        return row
    return row | {
        "prompt_ids": list(inputs.prompt_ids),
        "image_mask": [value for run in inputs.image_mask for value in run],
        "global_shape": list(inputs.global_shape),
        "global_sha256": inputs.global_sha256,
        "tiles_shape": list(inputs.tiles_shape),
        "tiles_sha256": inputs.tiles_sha256,
        "no_repeat_ngram_size": inputs.no_repeat_ngram_size,
        "max_new_tokens": inputs.max_new_tokens,
        "attention": inputs.attention,
        "dtype": inputs.dtype,
        "rotary_dtype": inputs.rotary_dtype,
    }


def _facts(result: OcrResult) -> str:
    """What the other tables do not hold of a result, and what UTF-8 cannot hold."""
    whole = (result.text_raw, *result.token_texts)
    kept = replace(
        result,
        text_raw="" if encodable(result.text_raw) == result.text_raw else result.text_raw,
        token_ids=None,
        token_texts=() if all(encodable(text) == text for text in whole) else result.token_texts,
        timings=(),
        top_two=(),
    )
    return json.dumps(to_jsonable(kept))


def _steps_row(page: str, result: OcrResult) -> Row:
    top = result.top_two
    return {
        "page": page,
        "backend": result.backend,
        "token_texts": list(result.token_texts) or None,
        "top_ids": [token for step in top for token in step.ids] or None,
        "top_logits": [logit for step in top for logit in step.logits] or None,
    }
