"""Backends on a device of this machine: our engines in this process, the published code in its worker."""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dsocr_core.backends.backend import Backend, Opening, PageRead
from dsocr_core.backends.drafting import drafts_of
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.base.specs import BackendSpec, parse_backend
from dsocr_core.engine.base import Engine, EngineOptions
from dsocr_core.engine.checkpoint import RANDOM_PREFIX, Checkpoint, load_checkpoint
from dsocr_core.engine.device import DeviceLock, current, device_lock, resolve_device, resolve_dtype
from dsocr_core.engine.drafts.statistics import WORTH_IT, DraftStatistics
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.engine.fast.engine import ENGINES
from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.models.devices import Gpu
from dsocr_core.models.family import FIRST, load_config
from dsocr_core.models.weights import weight_bytes
from dsocr_core.reading.fingerprints import checkpoint_fingerprint
from dsocr_core.reading.records import VENDOR, CancelToken, OcrRequest, OcrResult
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.settings import Settings
from dsocr_core.vendor.backend import VendorBackend

if TYPE_CHECKING:
    from dsocr_core.engine.fast.batch import BatchReader

log = logging.getLogger(__name__)
_announced = threading.Event()
_published: weakref.WeakSet[PublishedBackend] = weakref.WeakSet()
"""Open backends of the published code."""


class OnDevice(Backend):
    """Backend that holds the device's lock while it reads, and caches its results under its kind."""

    reads_together = True

    def __init__(self, spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> None:
        super().__init__(spec, settings)
        self.kind, self.opening = spec.kind, opening or Opening()
        self.reads_many = self.reads_many or spec.kind == "fast"
        self.results = ResultCache(settings, self.opening.results)
        self._building = threading.Lock()

    @functools.cached_property
    def device(self) -> torch.device:
        return resolve_device(self.settings.device)

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        return resolve_dtype(self.settings.dtype, self.device)

    @property
    def lock(self) -> DeviceLock:
        return device_lock(self.device)

    def cache_key(self, request: OcrRequest) -> str:
        return self.results.keys(self.kind, request).own

    def read_page(self, page: PageRead) -> OcrResult:
        name = page.request.name
        with self.lock.hold(f"{self.kind} on {name}", page.cancel, page.on_wait):
            try:
                return self._cached(self._recognize(page))
            except torch.cuda.OutOfMemoryError as error:
                raise DsocrError(f"{name}: the GPU is out of memory; choose a smaller preset") from error

    def _recognize(self, page: PageRead) -> OcrResult:
        raise NotImplementedError

    def _cached(self, result: OcrResult) -> OcrResult:
        """Put the result into the cache, and return it under this backend's name."""
        if self.opening.cached and self.opening.stores:
            self.results.add(result)
        return result if result.backend == self.name else replace(result, backend=self.name)

    def _require_settings(self) -> None:
        """Raise DsocrError for settings that this kind of backend does not support."""
        self.results.checkpoint  # noqa: B018 - that of the weights and the code as they are loaded
        kind, dtype, precision, draft = self.kind, self.dtype, self.settings.precision, self.settings.draft
        if precision != "off" and kind != "fast":
            words = (
                f"precision {precision} is a setting of the fast engine, not of {kind}: give it to one side"
            )
            raise DsocrError(f"{words}, like --a fast --a.precision, or --engine fast")
        if dtype == torch.float16 and kind != "eager":
            raise DsocrError(
                f"{kind} has no float16: use --engine eager, or give --dtype bfloat16 or float32"
            )
        if draft and kind == "eager":
            raise DsocrError("a draft is verified by the fast engine: give --engine fast")
        if draft and kind == "fast" and dtype == torch.float32:
            raise DsocrError("drafts are verified in bfloat16 alone: leave --dtype float32 or --draft out")


class EngineBackend(OnDevice):
    """One of our engines."""

    _engine: Engine | None = None
    _reader: BatchReader | None = None
    _warned = False

    @property
    def engine(self) -> Engine:
        """The engine, its model loaded. Raises DsocrError."""
        with self._building:
            if self._engine is None:
                if self.kind == "fast":
                    require_fast_engine(str(self.device))
                self._require_settings()
                with current(self.device):
                    self._engine = self._loaded()
            return self._engine

    def _loaded(self) -> Engine:
        settings, opening = self.settings, self.opening
        options = EngineOptions(
            attention=settings.own_attention,
            rotary_dtype=torch.float32 if settings.rotary == "float32" else None,
            max_pixels=settings.max_pixels, ignore_eos=opening.ignore_eos,
            marks=opening.marks or Marks.TIMED, top_two=opening.cached, drafts=drafts_of(settings),
            precision=settings.precision,
        )  # fmt: skip
        try:
            checkpoint = shared_checkpoint(settings.checkpoint, self.device, self.dtype)
            return ENGINES[settings.engine](checkpoint, options)
        except torch.cuda.OutOfMemoryError as error:
            gpu, path = Gpu.of(self.device), Path(settings.checkpoint.removeprefix(RANDOM_PREFIX))
            needed = weight_bytes(load_config(path), self.dtype)
            raise DsocrError(
                f"{settings.checkpoint}: the GPU is out of memory while the {self.kind} engine loads: the "
                f"weights take {needed / 1e9:.1f} GB and the engine some more, {gpu.free_bytes / 1e9:.1f} GB "
                "are free; end what else runs there"
            ) from error

    def load(self) -> None:
        self.engine  # noqa: B018 - loads it

    def prepare(self, request: OcrRequest, opened: PreparedPage | None = None) -> PreparedPage:
        return self.engine.prepare(request, opened)

    def _recognize(self, page: PageRead) -> OcrResult:
        """Read one page alone. With a draft or an 8-bit cache that is a batch of one slot."""
        self._announce()
        request, cancel, prepared, drafts = (
            page.request,
            page.cancel,
            page.prepared,
            self.engine.options.drafts,
        )
        if self.settings.precision != "off":
            return self.reader_of(1).read_all([request], cancel)[0]
        if drafts is not None:
            if prepared is None or prepared.image is None:
                prepared = self.engine.prepare(request, prepared)
            prepared = replace(prepared, draft=self.engine.draft_of(request, prepared))
        if drafts is None or prepared is None or not (prepared.draft or drafts.own_text):
            return self.engine.recognize(request, page.observer, cancel, prepared)
        result = self.reader_of(1).read_all([request], cancel, prepared=[prepared])[0]
        given = DraftStatistics()
        given.add(result.environment)
        if not self._warned and given.acceptance is not None and given.acceptance < WORTH_IT:
            self._warned = True
            rates = f"{given.acceptance:.0%} of the drafted tokens were accepted; below {WORTH_IT:.0%}"
            log.warning("%s: %s one page is read sooner without --draft", request.name, rates)
        return result

    def read_many(
        self, source: Source, on_result: OnResult, slots: int, cancel: CancelToken | None = None
    ) -> None:
        def store(key: object, outcome: OcrResult | DsocrError) -> None:
            on_result(key, outcome if isinstance(outcome, DsocrError) else self._cached(outcome))

        self.load()
        with self.lock.hold(f"{self.kind} on many pages", cancel, None):
            self._announce()
            # Under the lock: it may replace a reader with another number of slots.
            self.reader_of(slots).read(source, store, cancel)

    def _announce(self) -> None:
        """Log once that our decoding runs without the published `infer`, if no published backend is open."""
        first = self.engine.checkpoint.model.family.name == FIRST.name
        if first and not _published and not _announced.is_set():
            _announced.set()
            log.info("DeepSeek-OCR: vendor-parity decode engaged (no vendor infer)")

    def reader_of(self, slots: int) -> BatchReader:
        """Make the batch reader of that many slots, or reuse the last one. Raises DsocrError."""
        engine = self.engine
        # It needs triton, which `engine` has checked.
        from dsocr_core.engine.fast.batch import BatchReader

        with self._building:
            if self._reader is None or self._reader.wanted != slots:
                self._reader = None  # frees its memory first
                self._reader = BatchReader(engine, slots, self.opening.ignore_eos)
            return self._reader

    def close(self) -> None:
        with self._building:
            self._reader = None


class PublishedBackend(OnDevice):
    """The published code, in its worker process."""

    _vendor: VendorBackend | None = None

    def __init__(self, spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> None:
        super().__init__(spec, settings, opening)
        _published.add(self)

    def check(self, together: bool = False) -> None:
        super().check(together)
        if Path(self.settings.checkpoint).is_dir():
            self.vendor.check()

    def load(self) -> None:
        self.vendor  # noqa: B018 - makes it, and says what its code cannot do

    @property
    def vendor(self) -> VendorBackend:
        """Owner of the worker process, which is started for the first page. Raises DsocrError."""
        with self._building:
            if self._vendor is None:
                self._require_settings()
                settings, path = self.settings, self.settings.checkpoint
                if path.startswith(RANDOM_PREFIX):
                    words = "random weights come without the vendor's code; use run, not compare"
                    raise DsocrError(f"{path}: {words}")
                if self.device.type == "cuda" and not (gpu := Gpu.of(self.device)).has_kernels:
                    raise DsocrError(gpu.lacks)
                self._vendor = VendorBackend(
                    Path(path), device=str(self.device), dtype=str(self.dtype).removeprefix("torch."),
                    attention=settings.vendor_attention, interpreter=settings.vendor.interpreter or None,
                    timeout_s=settings.vendor.timeout_s, code_record=RUNS_DIRECTORY / "allowed_code.json",
                    trusted_directories=tuple(settings.vendor.trust_remote_code),
                    top_two=self.opening.cached,
                )  # fmt: skip
                self._vendor.check()  # now, not at the first page
            return self._vendor

    def _recognize(self, page: PageRead) -> OcrResult:
        return self.vendor.recognize(page.request, page.observer, page.cancel)

    def count_flops(self, request: OcrRequest, cancel: CancelToken | None = None) -> dict[str, list[int]]:
        with self.lock.hold(f"{self.kind} on {request.name}", cancel, None):
            return self.vendor.count_flops(request, cancel)

    def close(self) -> None:
        with self._building:
            if self._vendor is not None:
                self._vendor.close()
                self._vendor = None
        _published.discard(self)


def engine_backend(settings: Settings, opening: Opening | None = None) -> EngineBackend:
    return EngineBackend(parse_backend(settings.engine), settings, opening)


def published_backend(settings: Settings, opening: Opening | None = None) -> PublishedBackend:
    return PublishedBackend(parse_backend(VENDOR), settings, opening)


def shared_checkpoint(source: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """Load a checkpoint, or reuse one of the last two whose files have not changed."""
    return _loaded(source, checkpoint_fingerprint(source), device, dtype)


@functools.lru_cache(maxsize=2)
def _loaded(source: str, fingerprint: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    return load_checkpoint(source, device, dtype)
