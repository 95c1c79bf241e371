"""`history upgrade` of a cluster's output: shards of earlier versions become files of readings, in place.

Shard by shard the pages are written anew, and the marker is replaced when they are there. `run.json` comes
last: until then the output is one of the earlier version. What was there lies in `earlier/` or beside the new
files until all is done. Stopped at any moment it is called again.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.base.errors import one_line
from dsocr_core.base.specs.kinds import EngineSpec, VendorSpec
from dsocr_core.base.untrusted import Refused, parse_json
from dsocr_core.base.visible import json_bytes
from dsocr_core.cluster.job import FORMAT
from dsocr_core.cluster.lease import Lease
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.shards import PageRef
from dsocr_core.models.stages import Stage
from dsocr_core.reading.input_parity import (
    ATTENTION,
    DTYPE,
    GLOBAL_HASH,
    GRID,
    KNOWN_INPUT,
    LIMIT,
    NGRAM,
    PROMPT_TOKENS,
    TILES_HASH,
)
from dsocr_core.reading.records import BOXES_NOT_KNOWN, SIDES, OcrResult, StageTiming, ngram_words
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.record import RunRecord, in_any_clone
from dsocr_core.runs.sharded import RUN, Attempt, Marker, PageReading, marker_bytes
from dsocr_core.settings import Settings, settings_of

_EARLIER = "earlier"
_KEPT = {each.name for each in fields(Marker)} - {each.name for each in fields(Attempt)}
_FAULTS = (Refused, OSError, LookupError, TypeError, ValueError, pa.ArrowException)
"""Errors that a damaged or foreign shard raises."""


def outputs_at(location: str) -> list[str]:
    """The outputs of `run --cluster` there, of any version, or the two of `compare`. Raises DsocrError."""

    def is_one(place: str) -> bool:
        document = Output(place).document(RUN) or {}
        return "cluster" in document or "shard_pages" in document

    return list(filter(is_one, [location])) or list(filter(is_one, (f"{location}/{side}" for side in SIDES)))


def upgrade_output(location: str) -> tuple[int, dict[str, str]]:
    """Take an output over; how many shards, and of those that stay as they are why.

    Raises OtherDriver while somebody writes into it, StorageError.
    """
    output, done, failed = Output(location), 0, dict[str, str]()
    with Lease(output).take(threading.Event()):
        document = output.document(RUN) or {}
        if "cluster" not in document:
            settings = settings_of(document["settings"]).of_side("a")
            for name in (f"done/{each}" for each in output.store.names("done")):
                try:
                    done += _take(output, name, settings)
                except _FAULTS as error:
                    failed[name] = one_line(error, 300)
            if failed:
                return done, failed
            output.store.put(f"{_EARLIER}/{RUN}", output.store.read(RUN) or b"")
            output.store.put(RUN, json_bytes(_document(output, document, settings), indent=1) + b"\n")
        if earlier := output.store.files(_EARLIER):
            output.clear_attempts()
            for name in earlier:
                output.store.remove(f"{_EARLIER}/{name}")
            if output.store.root is not None:
                shutil.rmtree(output.store.root / _EARLIER, ignore_errors=True)
    return done, failed


def _take(output: Output, name: str, settings: Settings) -> bool:
    """Write the pages of a marker anew, and replace it; False where it is done. Raises what is in _FAULTS."""
    content = output.store.read(name) or b""
    marker = parse_json(content)
    if "worker_file" in marker:
        return False
    readings = output.store.read(str(marker["file"])) or b""
    if hashlib.sha256(readings).hexdigest() != marker["sha256"]:
        raise Refused(f"{marker['file']} is not what was committed; remove {name} to do without it")
    times: dict[int, list[StageTiming]] = {}
    for row in _rows(output.store.read(str(marker["times"])) or b""):
        timing = StageTiming(Stage(row["stage"]), row["milliseconds"], row["calls"])
        times.setdefault(row["number"], []).append(timing)
    pages = [_page(row, settings, times.get(row["number"], [])) for row in _rows(readings)]
    output.store.put(f"{_EARLIER}/{name}", content)
    attempt = output.write_attempt(str(marker["shard"]), pages)
    made = Marker(**asdict(attempt), **{key: value for key, value in marker.items() if key in _KEPT})
    output.store.put(name, marker_bytes(asdict(made)))
    return True


def _rows(content: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_rows(pa.py_buffer(content)).to_pylist()
    return rows


def _document(output: Output, before: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The `run.json` of this version; what the earlier one did not say is not known."""
    names = [f"done/{name}" for name in output.store.names("done")]
    began = min((marker.began for marker in output.markers(names)), default=0.0)
    record = RunRecord(
        id=f"cluster-{hashlib.sha256(json_bytes(before)).hexdigest()[:24]}",
        created=datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
        source="dsocr",
        backends=(settings.backend("a"),),
        preset=settings.preset_name,
        settings=in_any_clone(before["settings"]),
    )
    own = {name: before[name] for name in ("inputs", "shard_pages", "checkpoint", "code")}
    return record.to_json() | {"cluster": {"format": FORMAT, **own}}


def _page(row: Mapping[str, Any], settings: Settings, times: list[StageTiming]) -> PageReading:
    page = PageRef(row["number"], row["path"], row["page"])
    if row["status"] != "read":
        return page.failed(row["error"] or "not known", quarantined=row["status"] == "quarantined")
    tokens = row["token_ids"]
    facts = {BOXES_NOT_KNOWN: "the text has none"} if row.get("boxes_known") is False else {}
    known = {f"{KNOWN_INPUT}{line}": value for line, value in _inputs(row, settings).items() if value}
    return page.read(
        OcrResult(
            backend=row["backend"],
            request=settings.request(Path(row["path"]), row["source"]),
            image_size=(row["width"] or 0, row["height"] or 0),
            text_raw=row["text_raw"] or "",
            token_ids=None if tokens is None else tuple(tokens),
            token_texts=(),
            finish_reason=row["finish_reason"],
            inputs=None,
            timings=tuple(times),
            environment=facts | known,
        )
    )


def _inputs(row: Mapping[str, Any], settings: Settings) -> dict[str, str | None]:
    """Collect what is known of the model's inputs: of the page by its row, of the rest by the settings."""
    spec = settings.spec("a")
    engine, infer = isinstance(spec, EngineSpec), settings.infer
    prompt = row["prompt_tokens"]
    facts = {
        PROMPT_TOKENS: None if prompt is None else str(prompt),
        GRID: f"{row['grid_columns']} x {row['grid_rows']}" if row["grid_columns"] else None,
        GLOBAL_HASH: row.get("global_sha256"),
        TILES_HASH: row.get("tiles_sha256"),
    }
    if engine or isinstance(spec, VendorSpec):
        rule = ngram_words(infer.ngram_size, infer.ngram_window, infer.ngram_whitelist)
        facts |= {
            NGRAM: rule if infer.ngram_size else "0",
            LIMIT: None if infer.token_limit is None else str(infer.token_limit),
            DTYPE: None if settings.dtype == "auto" else settings.dtype,
            ATTENTION: settings.own_attention if engine else settings.vendor_attention,
        }
    return facts
