"""The result cache: what backends gave before, addressed by all that decides it, without loading torch.

An entry is a row of readings in a file named by its key, or where a run directory holds that row, the
directory's path. Written under a temporary name and renamed when whole: a reader never sees half a file.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT, RUNS_DIRECTORY
from dsocr_core.models.family import FIRST
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.fingerprints import code_version, required_files, result_key, shared_fingerprint
from dsocr_core.reading.records import SIDES, VENDOR, BackendName, OcrRequest, OcrResult, Side
from dsocr_core.reading.writing import write_whole
from dsocr_core.runs.parquet import read_rows, row_of
from dsocr_core.runs.readings import SCHEMA, few_rows, reading_table, result_of
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)

SHIPPED_RESULTS = PROJECT_ROOT / "data" / "samples" / "recorded"
Facts = dict[str, object]
_CREATED = "created"
_MAX_BYTES = 64 * 1024 * 1024
LOCAL_KINDS = ("eager", "fast", "vendor")
"""The backends whose results follow from the checkpoint and the settings."""


@dataclass(frozen=True)
class RecordedResult:
    """`created` is an ISO 8601 time in UTC."""

    result: OcrResult
    created: str


class ResultStore:
    """A folder of results. Reads never fail: a damaged or foreign file is as good as none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, key: str) -> RecordedResult | None:
        try:
            return self._row(key) or self._of_run(key)
        except (InvalidFile, OSError, pa.ArrowException, ValueError, LookupError, TypeError, OverflowError):
            return None

    def _row(self, key: str) -> RecordedResult | None:
        file = self.directory / f"{key}.parquet"
        if not file.exists():
            return None
        content = pa.py_buffer(read_bytes(file, _MAX_BYTES, follow_links=True))
        [row] = read_rows(content, SCHEMA).to_pylist()  # columns that came later are empty
        result = result_of(row)
        created = pq.read_schema(pa.BufferReader(content)).metadata[_CREATED.encode()].decode()
        return None if result is None else RecordedResult(result, created)

    def _of_run(self, key: str) -> RecordedResult | None:
        """The row of that key in the run that an entry names."""
        entry = parse_json(read_bytes(self.directory / f"{key}.json", _MAX_BYTES))
        rows = row_of(Path(entry["run"]) / "readings.parquet", "key", key, SCHEMA)
        result = result_of(rows.to_pylist()[0])
        return None if result is None else RecordedResult(result, str(entry["created"]))

    def save(self, key: str, recorded: RecordedResult) -> None:
        """Write one result; raises DsocrError when it cannot be written, leaving nothing behind."""
        request = recorded.result.request
        table = reading_table(request.name, recorded.result, (request.file, *request.more_files))
        content = few_rows(table, {_CREATED: recorded.created})
        self._write(self.directory / f"{key}.parquet", content)

    def link(self, keys: Iterable[str], run: Path, created: str) -> None:
        """Have a run directory's rows found by their keys. Raises DsocrError."""
        for key in keys:
            content = json.dumps({"run": str(run.resolve()), "created": created}).encode()
            self._write(self.directory / f"{key}.json", content)

    def _write(self, file: Path, content: bytes) -> None:
        try:
            write_whole(file, content)
        except OSError as error:
            raise DsocrError(f"{file}: the result could not be written ({error.strerror})") from error


class ResultCache:
    """The results under one set of settings: those of this machine, then those shipped with the samples."""

    def __init__(self, settings: Settings, directory: Path | None = None) -> None:
        self.settings = settings
        self._store = ResultStore(directory or RUNS_DIRECTORY / "results")
        self._shipped = ResultStore(SHIPPED_RESULTS)

    @functools.cached_property
    def checkpoint(self) -> str:
        """The checkpoint's fingerprint as it is asked for first: what a backend has loaded stays that."""
        return shared_fingerprint(self.settings.checkpoint)

    def find(self, request: OcrRequest, sides: Iterable[Side] = SIDES) -> Comparison | None:
        """Find what an earlier run gave for the same checkpoint, image and settings, if all sides have it."""
        found: dict[Side, RecordedResult] = {}
        pages: dict[OcrRequest, Facts] = {}
        for side in sides:
            recorded = self._of_side(side, request, pages)
            if recorded is None:
                return None
            found[side] = recorded
        if not found:
            return None
        results = {side: recorded.result for side, recorded in found.items()}
        return Comparison(
            request,
            results.get("a"),
            results.get("b"),
            recorded_at=min(recorded.created for recorded in found.values()),
            tolerance=self.settings.tolerance,
        )

    def _of_side(
        self, side: Side, request: OcrRequest, pages: dict[OcrRequest, Facts]
    ) -> RecordedResult | None:
        spec, cache = self.settings.spec(side), self
        if spec.kind not in LOCAL_KINDS:
            return None  # what another program gives may be another thing tomorrow
        if self.settings.names_backend(side):
            cache = ResultCache(self.settings.of_side(side), self._store.directory)
            more = request.more if request.together else None
            request = cache.settings.request(request.image, request.source, more)
            pages = {}
        if request not in pages:
            pages[request] = cache._page_facts(request)  # once: it hashes the image
        recorded = cache._lookup(spec.kind, pages[request])
        if recorded is None:
            return None
        return replace(recorded, result=replace(recorded.result, request=request, backend=spec.name))

    def _lookup(self, backend: BackendName, page: Facts) -> RecordedResult | None:
        return (
            self._store.find(self._key(backend, page))
            or self._shipped.find(self._example_key(backend, page))
            or (self._shipped.find(_shipped_key(backend, page)) if self._usual_dtype else None)
        )

    def add(self, result: OcrResult) -> None:
        """Store what a backend gave; where that fails it is said, and the reading is one all the same."""
        try:
            key = self._key(result.backend, self._page_facts(result.request))
            self._store.save(key, RecordedResult(portable(result), _now()))
        except DsocrError as error:
            log.warning("not in the result cache: %s", error)

    def link(self, keys: Iterable[str], run: Path) -> None:
        """Have rows of a run directory found by their keys; where that fails it is said."""
        try:
            self._store.link(keys, run, _now())
        except DsocrError as error:
            log.warning("not in the result cache: %s", error)

    def ship(self, comparison: Comparison, directory: Path, example: bool = False) -> None:
        """Keep a comparison for the first start on any machine; as an `example` only where the same number
        type and attention are asked for."""
        store = ResultStore(directory)
        for side, result in comparison.results.items():
            cache = ResultCache(self.settings.of_side(side))
            key = cache.shipped_key(result.backend, comparison.request, example)
            store.save(key, RecordedResult(portable(result), _now()))

    def shipped_key(self, backend: BackendName, request: OcrRequest, example: bool = False) -> str:
        """The name of a result that comes with the samples. Raises DsocrError without its page."""
        page = self._page_facts(request)
        return self._example_key(backend, page) if example else _shipped_key(backend, page)

    def key(self, backend: BackendName, request: OcrRequest) -> str:
        """A name for all that decides a backend's result on a page, its file's content included.

        Raises DsocrError when the file cannot be read.
        """
        return self._key(backend, self._page_facts(request))

    def _key(self, backend: BackendName, page: Facts) -> str:
        settings = self.settings
        device = device_type(settings.device)
        dtype = settings.dtype
        if dtype == "auto":
            dtype = "bfloat16" if device == "cuda" else "float32"
        facts = page | {
            "road": _road(backend),
            "code": code_version(),
            "device": device,
            "dtype": dtype,
            "engine": "published" if backend == VENDOR else backend,
            "attention": settings.vendor_attention if backend == VENDOR else settings.own_attention,
            "rotary": "published" if backend == VENDOR else settings.rotary,
            # Only where it is asked for, so that earlier results are found as before.
            **({} if settings.precision == "off" else {"precision": settings.precision}),
        }
        return result_key(facts)

    @property
    def _usual_dtype(self) -> bool:
        """Tell whether shipped results, of float32 on a CPU, stand for what is asked for."""
        return self.settings.dtype in ("auto", "float32")

    def _example_key(self, backend: BackendName, page: Facts) -> str:
        """The number type as it was asked for: "auto" is another one on another machine, and no example."""
        attention = self.settings.vendor_attention if backend == VENDOR else self.settings.own_attention
        return result_key(
            page | {"road": _road(backend), "dtype": self.settings.dtype, "attention": attention}
        )

    def _page_facts(self, request: OcrRequest) -> Facts:
        file, *more = required_files(request)
        return {
            "checkpoint": self.checkpoint,
            "image": file.sha256,
            "preset": request.preset,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
            "no_repeat_ngram_size": request.no_repeat_ngram_size,
            # Only where they are asked for, so that earlier results are found as before.
            **{name: True for name in ("eval_mode", "test_compress") if getattr(request, name)},
            **request.unpublished,
            **({"model": request.model} if request.model != FIRST.name else {}),
            **({"more": [each.sha256 for each in more]} if more else {}),
        }


def _shipped_key(backend: BackendName, page: Facts) -> str:
    """Device and number type are left out: a shipped result greets a first start on any machine."""
    return result_key(page | {"road": _road(backend)})


def _road(backend: BackendName) -> str:
    """The word for a backend in keys. They stay as first made: another would lose every result."""
    return VENDOR if backend == VENDOR else "ours"


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def portable(result: OcrResult) -> OcrResult:
    """The result with paths inside the project written relative to it, so that it reads anywhere."""

    def relative(text: str) -> str:
        path = Path(text)
        if not path.is_absolute() or not path.is_relative_to(PROJECT_ROOT):
            return text
        return str(path.relative_to(PROJECT_ROOT))

    request = replace(result.request, image=Path(relative(str(result.request.image))))
    environment = {key: relative(value) for key, value in result.environment.items()}
    return replace(result, request=request, environment=environment)
