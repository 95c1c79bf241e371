"""Facts that are known of a page of a run whose tables lack its facts: the run's settings and record, as far
as they hold for every page of a backend. Verdicts by the rule of today, where another rule gave them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.conversion import converted
from dsocr_core.base.specs.kinds import BackendSpec, EngineSpec, VendorSpec
from dsocr_core.base.specs.parsing import parse_backends
from dsocr_core.base.visible import text_name
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.reading.input_parity import ATTENTION, DTYPE, GRID, KNOWN_INPUT, LIMIT, NGRAM, PROMPT_TOKENS
from dsocr_core.reading.markup import DET
from dsocr_core.reading.parity import parity
from dsocr_core.reading.records import (
    BOXES_NOT_KNOWN,
    POLICY_FIELDS,
    SIDES,
    VENDOR,
    FinishReason,
    OcrRequest,
    OcrResult,
    ngram_words,
    published_ngram_size,
)
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.readings import Row, inputs_of, is_whole, request_of, result_of, timings_of, top_two_of
from dsocr_core.runs.record import RunRecord, described_backend, tolerance_of
from dsocr_core.settings import InferSettings

_OF_A_BACKEND = (
    "engine", "checkpoint", "device", "device_name", "torch", "python", "transformers", "overridden",
    "batch", "quantisation", "endpoint", "model", "server", "program",
)  # fmt: skip
"""Facts that hold for every page that a backend read; others are a page's own."""


def environment_of(record: RunRecord, backend: str | None, text: str) -> dict[str, str]:
    """Find what a run's record says of a backend, and that holds for all of its pages.

    The record merges what its pages have, so that one page's own fact stands there as if it were all pages'.
    That the boxes are not known holds for a page whose text has none.
    """
    own = record.environment.get(backend or "")
    merged = own if isinstance(own, dict) else record.environment if record.source != "dsocr" else {}
    found = {str(name): str(value) for name, value in merged.items() if isinstance(value, (str, int, float))}
    if record.source == "dsocr":
        boxless = BOXES_NOT_KNOWN in found and DET not in text
        found = {name: value for name, value in found.items() if name in _OF_A_BACKEND}
        if boxless:
            found[BOXES_NOT_KNOWN] = "the text has none"
    return found


def known_inputs(record: RunRecord, backend: str | None, image: Mapping[str, Any]) -> dict[str, str]:
    """Collect what is known of the model's inputs where they were not recorded, as a result's environment has
    it.
    """
    # A record's type and attention are those of one backend; its settings hold for all that are told them.
    own = backend in (None, described_backend(record.backends))
    ngram = limit = None
    if own or _is_told(record, backend):
        ngram, limit = ngram_size_of(record, backend), infer_of(record, backend).get("max_new_tokens")
    columns, lines, prompt = image["grid_columns"], image["grid_rows"], image["prompt_tokens"]
    facts = {
        PROMPT_TOKENS: None if prompt is None else int(prompt),
        GRID: None if columns is None or lines is None else f"{int(columns)} x {int(lines)}",
        NGRAM: None if ngram is None else _ngram_line(policy_of(record, backend), ngram),
        LIMIT: limit,
        DTYPE: record.dtype if own else None,
        ATTENTION: record.attention if own else None,
    }
    return {f"{KNOWN_INPUT}{name}": str(value) for name, value in facts.items() if value is not None}


def infer_of(record: RunRecord, backend: str | None) -> Mapping[str, Any]:
    """The `infer` settings of a backend; empty where the record has none, and for runs of other programs."""
    infer = record.settings.get("infer") if record.source == "dsocr" else None
    if not isinstance(infer, dict):
        return {}
    spec = _spec(record, backend)
    if spec is None or not spec.infer:
        return infer
    try:
        return {**infer, **converted(InferSettings, spec.infer, "infer")}
    except DsocrError:
        return infer


def limit_of(record: RunRecord, backend: str | None) -> int | None:
    """Most new tokens, None when not recorded or not limited."""
    limit = infer_of(record, backend).get("max_new_tokens")
    return limit if isinstance(limit, int) else None


def ngram_size_of(record: RunRecord, backend: str | None) -> int | None:
    """Size of the n-grams that may not repeat; the published code's own where settings left it to that."""
    infer = infer_of(record, backend)
    if "no_repeat_ngram_size" not in infer:
        return None
    chosen = infer["no_repeat_ngram_size"]
    if chosen is None:
        return published_ngram_size(bool(infer.get("eval_mode")))
    return chosen if isinstance(chosen, int) else None


def prompt_of(record: RunRecord) -> str | None:
    """The prompt of a run's settings; other programs name theirs differently."""
    name = record.settings.get("prompt") if record.source == "dsocr" else None
    return PROMPTS.get(name, name) if isinstance(name, str) else None


def policy_of(record: RunRecord, backend: str | None) -> dict[str, Any]:
    """Fields of a request in which a backend differed from the published code: `POLICY_FIELDS`.

    Empty for the published code itself, for what is never told them, and for runs from before there were any.
    """
    infer, spec = infer_of(record, backend), _spec(record, backend)
    told = isinstance(spec, EngineSpec)
    if backend == VENDOR or (spec is not None and not told):
        return {}
    usual = InferSettings()
    given = {
        name: infer[name] for name in POLICY_FIELDS if name in infer and infer[name] != getattr(usual, name)
    }
    if not given:
        return {}
    try:
        checked = InferSettings(**converted(InferSettings, given, "infer"))
    except DsocrError:
        return {}
    found = {name: getattr(checked, name) for name in given}
    return found | ({"ngram_whitelist": tuple(checked.ngram_whitelist)} if "ngram_whitelist" in given else {})


def _ngram_line(policy: Mapping[str, Any], size: int) -> str:
    """As `ModelInputs.ngram_words`; window and whitelist are not known of older runs: as published."""
    window, exempt = policy.get("ngram_window", 0), policy.get("ngram_whitelist", ())
    return ngram_words(size, window, exempt) if window or exempt else str(size)


def _is_told(record: RunRecord, backend: str | None) -> bool:
    """Tell whether a backend reads with what `infer_of` gives: one of our engines, or the vendor."""
    return backend == VENDOR or isinstance(_spec(record, backend), EngineSpec | VendorSpec)


def _spec(record: RunRecord, backend: str | None) -> BackendSpec | None:
    """The specification of a backend that was named; None where none was, or the record has another form."""
    settings = record.settings
    sides = [settings.get(side) for side in SIDES]
    if sides == [None, None]:
        return None
    usual = (settings.get("engine") or "eager", VENDOR)
    choices = [side or other for side, other in zip(sides, usual, strict=True)]
    configured = settings.get("backends")
    if not all(isinstance(choice, (str, dict)) for choice in choices):
        return None
    try:
        specs = parse_backends(choices, configured if isinstance(configured, dict) else {})
    except DsocrError:
        return None
    return next((spec for spec in specs if spec.name == backend), None)


def older_result(record: RunRecord, row: Row) -> OcrResult:
    """Make the result of a page of a run whose tables hold less.

    What they lack, and the whole run is known to have, is its record's; what only some of its pages have is
    not known.
    """
    backend, page = row["backend"], row["page"]
    policy, given = policy_of(record, backend), inputs_of(row)
    if given is not None:  # earlier runs have no window and whitelist
        own = {name: policy[name] for name in ("ngram_window", "ngram_whitelist") if name in policy}
        given = replace(given, **own)
    prompt = (row["request"] or {}).get("prompt")
    text = row["text_raw"]
    environment = environment_of(record, backend, text or "")
    if given is None:
        environment |= known_inputs(record, backend, row)
    request = OcrRequest.of_others(
        Path(text_name(row["path"] or page)),
        row["source"] or page,
        preset=row["preset"],
        prompt=prompt_of(record) if prompt is None else prompt,
        max_new_tokens=given.max_new_tokens if given else limit_of(record, backend),
        no_repeat_ngram_size=given.no_repeat_ngram_size if given else ngram_size_of(record, backend),
        file=request_of(row).file,
        **policy,
    )
    ids, finish = row["token_ids"], row["finish_reason"]
    return OcrResult(
        backend=backend or record.engine or record.source,
        request=request,
        image_size=(row["width"], row["height"]) if row["width"] and row["height"] else (0, 0),
        text_raw=text or "",
        token_ids=None if ids is None else tuple(ids),
        token_texts=tuple(row["token_texts"] or ()),
        finish_reason=finish if finish in get_args(FinishReason) else None,
        inputs=given,
        timings=timings_of(row),
        environment=environment,
        top_two=top_two_of(row),
    )


_AGAIN = ("within_tolerance", "differs")
"""Verdicts that are given anew: identical stays identical, and what could not be compared stays so."""


def judged_anew(directory: Path, record: RunRecord) -> Counter[str]:
    """Count the pages of each verdict of a run's `parity.parquet`; a page that is not whole keeps its own.

    Raises pyarrow's errors, OSError, DsocrError.
    """
    rows = read_rows(directory / "parity.parquet", columns=["page", "verdict"]).to_pylist()
    verdicts = {row["page"]: row["verdict"] for row in rows}
    again = [page for page, verdict in verdicts.items() if verdict in _AGAIN]
    sides = sorted(record.backends, key=lambda name: name == VENDOR)[:2]
    if again and len(sides) == 2 and (directory / "readings.parquet").exists():
        rows = read_rows(directory / "readings.parquet").to_pylist()
        results: dict[tuple[str, str], OcrResult] = {}
        for row in rows:
            if row["page"] in again and row["error"] is None and row["text_raw"] is not None:
                whole = result_of(row) if is_whole(row) else None
                results[row["page"], row["backend"]] = whole or older_result(record, row)
        for page in again:
            a, b = (results.get((page, side)) for side in sides)
            if a is not None and b is not None:
                verdicts[page] = parity(a, b, tolerance_of(record)).verdict
    return Counter(verdicts.values())
