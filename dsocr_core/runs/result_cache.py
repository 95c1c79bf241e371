"""The result cache: what backends gave before, addressed by all that decides it, without loading torch.

A directory of runs, as a history is one: `runs/KEY/` is a run whose row of readings has that key, or a
link to the run directory that has it. Results that come with the samples are such runs, of many rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dsocr_core.base.bounded_json import parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT, RUNS_DIRECTORY
from dsocr_core.models.family import FIRST
from dsocr_core.reading.fingerprints import checkpoint_fingerprint, code_version, required_files, result_key
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, VENDOR, BackendName, OcrRequest, OcrResult, Side
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import SCHEMA, PageResults, result_of
from dsocr_core.runs.schema import parquet_file, with_columns
from dsocr_core.runs.storage import DOCUMENT_LIMIT, RunStorage
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)

SHIPPED_RESULTS = PROJECT_ROOT / "data" / "samples" / "recorded"
Facts = dict[str, object]
_RUNS = "runs"
LOCAL_KINDS = ("eager", "fast", "vendor")
"""The backends whose results follow from the checkpoint and the settings."""
_FAULTS = (DsocrError, OSError, pa.ArrowException, ValueError, LookupError, TypeError, OverflowError)


class RecordedResult(NamedTuple):
    """A stored result and the time of its reading, ISO 8601 in UTC."""

    result: OcrResult
    created: str


def find_result(key: str, runs: Iterable[Path]) -> RecordedResult | None:
    """The result of that key in one of these runs. A damaged or foreign run is as good as none."""
    for run in runs:
        with contextlib.suppress(*_FAULTS):
            result = result_of(_row_of(run / "readings.parquet", key))
            if result is not None:
                document = parse_json(read_bytes(run / "run.json", DOCUMENT_LIMIT), any_number=True)
                return RecordedResult(result, str(document["created"]))
    return None


def _row_of(file: Path, key: str) -> dict[str, Any]:
    """The row of that key. Raises LookupError, pyarrow's errors and OSError."""
    if not file.is_file():  # a pipe in its place would be waited for
        raise LookupError
    parquet = parquet_file(file)
    for group in range(parquet.num_row_groups):
        keys = parquet.read_row_group(group, ["key"], use_threads=False)["key"].to_pylist()
        if key in keys:
            row = parquet.read_row_group(group, use_threads=False).slice(keys.index(key), 1)
            return with_columns(row, SCHEMA).to_pylist()[0]  # type: ignore[no-any-return]
    raise LookupError


def save_results(root: Path, name: str, results: Mapping[str, OcrResult], created: str | None = None) -> None:
    """Write results by their keys as one run below `root`, in place of one of its name. Raises DsocrError."""
    from dsocr_core.runs.run_directory import RunDirectory

    backends = tuple(dict.fromkeys(result.backend for result in results.values()))
    created = created or datetime.now(UTC).isoformat(timespec="seconds")
    record = RunRecord(name, created, "dsocr", backends=backends)
    with RunDirectory.create(root, record, replace=True) as run:
        for key, result in results.items():
            run.add(PageResults(result.request.name, results=[result], keys={result.backend: key}))


class ResultCache:
    """The results under one set of settings: those of this machine, then those shipped with the samples."""

    def __init__(self, settings: Settings, directory: Path | None = None) -> None:
        self.settings = settings
        self.directory = directory or RUNS_DIRECTORY / "cache"

    @functools.cached_property
    def checkpoint(self) -> str:
        """The checkpoint's fingerprint as it is asked for first: what a backend has loaded stays that."""
        return checkpoint_fingerprint(self.settings.checkpoint)

    def find(self, request: OcrRequest, sides: Iterable[Side] = SIDES) -> Comparison | None:
        """Find what an earlier run gave for the same checkpoint, image and settings, if all sides have it."""
        recorded = {side: self._of_side(side, request) for side in sides}
        found = {side: each for side, each in recorded.items() if each is not None}
        if not found or len(found) < len(recorded):
            return None
        a, b = (found[side].result if side in found else None for side in SIDES)
        created = min(each.created for each in found.values())
        return Comparison(request, a, b, {}, created, tolerance=self.settings.tolerance)

    def _of_side(self, side: Side, request: OcrRequest) -> RecordedResult | None:
        spec, cache = self.settings.spec(side), self
        if spec.kind not in LOCAL_KINDS:
            return None  # what another program gives may be another thing tomorrow
        if getattr(self.settings, side) is not None:
            cache = ResultCache(self.settings.of_side(side), self.directory)
            more = request.more if request.together else None
            request = cache.settings.request(request.image, request.source, more)
        keys = cache.keys(spec.kind, request)
        recorded = find_result(keys.own, [self.directory / _RUNS / keys.own])
        recorded = recorded or find_result(keys.shipped, sorted(SHIPPED_RESULTS.glob(f"{_RUNS}/*")))
        if recorded is None:
            return None
        return recorded._replace(result=replace(recorded.result, request=request, backend=spec.name))

    def add(self, result: OcrResult) -> None:
        """Store what a backend gave; where that fails it is said, and the reading is one all the same."""
        try:
            key = self.keys(result.backend, result.request).own
            save_results(self.directory, key, {key: result})
        except (DsocrError, OSError) as error:
            log.warning("not in the result cache: %s", error)

    def link(self, keys: Iterable[str], run: Path) -> None:
        """Add rows of a run directory by their keys. A failure is logged."""
        try:
            (self.directory / _RUNS).mkdir(parents=True, exist_ok=True)
            for key in dict.fromkeys(keys):
                RunStorage(self.directory).remove(key)
                (self.directory / _RUNS / key).symlink_to(run.resolve())
        except (DsocrError, OSError) as error:
            log.warning("not in the result cache: %s", error)

    def keys(self, backend: BackendName, request: OcrRequest) -> Keys:
        """Names for what decides a backend's result on a page, its file's content included.

        Raises DsocrError when the file cannot be read.
        """
        settings, vendor = self.settings, backend == VENDOR
        file, *more = required_files(request)
        attention = settings.vendor_attention if vendor else settings.own_attention
        page: Facts = {
            "checkpoint": self.checkpoint,
            "image": file.sha256,
            "preset": request.preset,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
            "no_repeat_ngram_size": request.no_repeat_ngram_size,
            "road": VENDOR if vendor else "ours",
            # Only where they are asked for, so that earlier results are found as before.
            **{name: True for name in ("eval_mode", "test_compress") if getattr(request, name)},
            **request.unpublished,
            **({"model": request.model} if request.model != FIRST.name else {}),
            **({"more": [each.sha256 for each in more]} if more else {}),
        }
        device, usual = device_type(settings.device), {"cuda": "bfloat16"}
        dtype = usual.get(device, "float32") if settings.dtype == "auto" else settings.dtype
        own = page | {
            "code": code_version(),
            "device": device,
            "dtype": dtype,
            "engine": "published" if vendor else backend,
            "attention": attention,
            "rotary": "published" if vendor else settings.rotary,
            **({} if settings.precision == "off" else {"precision": settings.precision}),
        }
        if settings.dtype not in ("auto", "float32"):  # shipped results are else of float32 on a CPU
            page |= {"dtype": settings.dtype, "attention": attention}
        return Keys(result_key(own), result_key(page))


class Keys(NamedTuple):
    """Names of a result: on this machine, and of one that comes with the samples."""

    own: str
    shipped: str


def device_type(name: str) -> str:
    """`cpu` or `cuda` for a device setting. Asks torch only where an NVIDIA driver is installed."""
    if name != "auto":
        return name.partition(":")[0]
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
