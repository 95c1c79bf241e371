"""B: what another engine wrote on a page."""

from __future__ import annotations

from dsocr_core.page.prompt import build_prompt
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.trace.why.match import Other

_UNQUANTISED = ("eager", "fast", VENDOR)
"""Backends that read the checkpoint's own weights; of others only what they say is known."""


def of_result(result: OcrResult, name: str = "") -> Other:
    """B from a result of any backend.

    Its prompt is known where its inputs are: what a server or a program makes of ours nobody has seen.
    """
    request = result.request
    return Other(
        name or result.backend,
        result.text_raw,
        result.token_ids,
        result.finish_reason,
        result.inputs,
        None if result.inputs is None else build_prompt(request.required.prompt, request.template),
        result.environment.get("quantisation") or ("none" if result.backend in _UNQUANTISED else None),
    )
