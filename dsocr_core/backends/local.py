"""Our engines and the published code, in this process and its worker, under one set of settings."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dsocr_core.backends.drafting import drafts_of
from dsocr_core.engine.base import Engine, EngineOptions
from dsocr_core.engine.checkpoint import RANDOM_PREFIX, Checkpoint, load_checkpoint
from dsocr_core.engine.device import DeviceLock, device_lock, resolve_device, resolve_dtype
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.registry import ENGINES
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.errors import DsocrError
from dsocr_core.outputs.result_cache import ResultCache
from dsocr_core.records import (
    VENDOR,
    Backend,
    BackendName,
    CancelToken,
    Observer,
    OcrRequest,
    OcrResult,
)
from dsocr_core.settings import ALLOWED_CODE, Settings
from dsocr_core.vendor.backend import VendorBackend

if TYPE_CHECKING:
    from dsocr_core.engine.fast.batch_reader import BatchReader


class LocalBackends:
    """The settings' engine and the vendor, called by their names. Thread-safe.

    Models load on first use and stay.

    `marks` is what our engine's stages leave behind; results without times are not cached. `ignore_eos` lets
    our engine decode on to the token limit, for measuring: nothing of that is cached either. Without `caches`
    nothing is. Only what is cached has the two best logits of each step.
    """

    def __init__(
        self,
        settings: Settings,
        results: Path | None = None,
        marks: Marks = Marks.TIMED,
        ignore_eos: bool = False,
        caches: bool = True,
    ) -> None:
        self.settings = settings
        self._marks, self._ignore_eos = marks, ignore_eos
        self._caches = caches and marks is Marks.TIMED and not ignore_eos
        self.results = ResultCache(settings, results)
        self._building = threading.Lock()
        self._engine: Engine | None = None
        self._vendor: VendorBackend | None = None
        self._reader: BatchReader | None = None

    # --- what runs where ------------------------------------------------------------------------

    @functools.cached_property
    def device(self) -> torch.device:
        return resolve_device(self.settings.device)

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        return resolve_dtype(self.settings.dtype, self.device)

    @property
    def lock(self) -> DeviceLock:
        """The device's lock: `recognize` holds it, `lock.holder` says who has it."""
        return device_lock(self.device)

    def check_vendor(self) -> None:
        """Say what the vendor's code cannot do here before a model is loaded. Raises DsocrError."""
        if Path(self.settings.checkpoint).is_dir():
            backend = self.backend(VENDOR)
            if isinstance(backend, VendorBackend):
                backend.check()

    def backend(self, backend: BackendName) -> Backend:
        """The backend: an engine with its model loaded, or the vendor's, ready to run. Raises DsocrError."""
        if backend != VENDOR:
            return self.engine
        with self._building:
            if self._vendor is None:
                self._vendor = self._vendor_backend()
            return self._vendor

    @property
    def engine(self) -> Engine:
        """Our engine, its model loaded. Raises DsocrError."""
        with self._building:
            if self._engine is None:
                settings = self.settings
                if settings.draft and settings.engine != "fast":
                    raise DsocrError("a draft is verified by the fast engine: give --engine fast")
                if settings.engine == "fast":
                    require_fast_engine(str(self.device))
                    if self.dtype == torch.float16:
                        raise DsocrError("the fast engine has no float16: use --engine eager")
                self._engine = ENGINES[settings.engine](
                    shared_checkpoint(settings.checkpoint, self.device, self.dtype),
                    EngineOptions(
                        attention=settings.own_attention,
                        rotary_dtype=torch.float32 if settings.rotary == "float32" else None,
                        max_pixels=settings.max_pixels,
                        ignore_eos=self._ignore_eos,
                        marks=self._marks,
                        top_two=self._caches,
                        drafts=drafts_of(settings),
                    ),
                )
            return self._engine

    def _vendor_backend(self) -> VendorBackend:
        settings = self.settings
        if settings.checkpoint.startswith(RANDOM_PREFIX):
            raise DsocrError(
                f"{settings.checkpoint}: random weights come without the vendor's code; use run, not compare"
            )
        if self.dtype == torch.float16:
            raise DsocrError("the published code runs in bfloat16 or float32: give --dtype one of them")
        backend = VendorBackend(
            Path(settings.checkpoint),
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            attention=settings.vendor_attention,
            interpreter=settings.vendor.interpreter or None,
            timeout_s=settings.vendor.timeout_s,
            trusted_directories=tuple(settings.vendor.trust_remote_code),
            code_record=ALLOWED_CODE,
            top_two=self._caches,
        )
        backend.check()  # before the first page
        return backend

    def close(self) -> None:
        """Stop the vendor's worker; give the memory of pages read together back."""
        with self._building:
            self._reader = None
            if self._vendor is not None:
                self._vendor.close()
                self._vendor = None

    # --- one page -------------------------------------------------------------------------------

    def prepare(self, request: OcrRequest) -> PreparedPage:
        """Our engine's preprocessing of a page before its turn, on any thread. Raises DsocrError."""
        return self.engine.prepare(request)

    def recognize(
        self,
        backend: BackendName,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """Run one backend, holding the device, and cache its result. Raises DsocrError or Cancelled."""
        with self.lock.hold(f"{backend} on {request.name}", cancel, on_wait):
            if backend != VENDOR:
                result = self.engine.recognize(request, observer, cancel, prepared)
            else:
                result = self.backend(backend).recognize(request, observer, cancel)
        if self._caches:
            self.results.add(result)
        return result

    @property
    def reads_together(self) -> bool:
        """Whether our engine can read many pages at once."""
        return self.settings.engine == "fast" and not self.settings.draft

    def read_together(
        self,
        source: Source,
        on_result: OnResult,
        slots: int,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Our engine on all pages of a source, at most `slots` at once, holding the device.

        Caches their results. Raises DsocrError for what concerns all pages, Cancelled when `cancel` is set.
        """

        def keep(key: object, outcome: OcrResult | DsocrError) -> None:
            if self._caches and not isinstance(outcome, DsocrError):
                try:
                    self.results.add(outcome)
                except DsocrError as error:
                    outcome = error
            on_result(key, outcome)

        reader = self.reader_of(slots)
        with self.lock.hold(f"{self.settings.engine} on many pages", cancel, on_wait):
            reader.read(source, keep, cancel)

    def reader_of(self, slots: int) -> BatchReader:
        """What `read_together` reads with. Raises DsocrError."""
        engine = self.engine
        # It needs triton, which `engine` has asked for.
        from dsocr_core.engine.fast.batch_reader import BatchReader

        with self._building:
            if self._reader is None or self._reader.wanted != slots:
                self._reader = None  # gives its memory back first
                self._reader = BatchReader(engine, slots, self._ignore_eos)
            return self._reader


@functools.lru_cache(maxsize=2)
def shared_checkpoint(source: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """A loaded checkpoint, shared by all of this process; the last two stay."""
    return load_checkpoint(source, device, dtype)
