"""One page down both roads: request -> results -> comparison, each result kept."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dsocr_core.engine.backend import ENGINES, Engine, PreparedPage
from dsocr_core.engine.checkpoint import RANDOM_PREFIX, Checkpoint, load_checkpoint
from dsocr_core.engine.device import DeviceLock, device_lock, resolve_device, resolve_dtype
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.records import Backend, CancelToken, Observer, OcrRequest, OcrResult, Road
from dsocr_core.results import ROADS, Comparison, KnownResults
from dsocr_core.settings import EMBEDDED_CHECKPOINT, Settings
from dsocr_core.vendor.backend import VendorBackend

if TYPE_CHECKING:
    from dsocr_core.engine.batch import BatchReader

log = logging.getLogger(__name__)


class Pipeline:
    """Both roads under one set of settings. Models load on first use and stay; thread-safe.

    `marks` is what our road's stages leave behind; results without times are not kept. `ignore_eos` lets
    our road decode on to the token limit, for measuring: nothing of that is kept either. Only what is kept
    has the two best logits of each step.
    """

    def __init__(
        self,
        settings: Settings,
        results: Path | None = None,
        marks: Marks = Marks.TIMED,
        ignore_eos: bool = False,
    ) -> None:
        self.settings = settings
        self._marks, self._ignore_eos = marks, ignore_eos
        self._keeps = marks is Marks.TIMED and not ignore_eos
        self.results = KnownResults(settings, results)
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

    def check(self, roads: Iterable[Road]) -> None:
        """Say what the vendor's code cannot do here before a model is loaded. Raises DsocrError."""
        if "vendor" in roads and Path(self.settings.checkpoint).is_dir():
            backend = self.backend("vendor")
            if isinstance(backend, VendorBackend):
                backend.check()

    def backend(self, road: Road) -> Backend:
        """The road, its model loaded (ours) or its worker ready to start (vendor). Raises DsocrError."""
        if road == "ours":
            return self.engine
        with self._building:
            if self._vendor is None:
                self._vendor = self._vendor_backend()
            return self._vendor

    @property
    def engine(self) -> Engine:
        """Our road's engine, its model loaded. Raises DsocrError."""
        with self._building:
            if self._engine is None:
                settings = self.settings
                if settings.engine == "fast":
                    require_fast_engine(str(self.device))
                self._engine = ENGINES[settings.engine](
                    shared_checkpoint(settings.checkpoint, self.device, self.dtype),
                    settings.own_attention,
                    torch.float32 if settings.rotary == "float32" else None,
                    settings.max_pixels,
                    self._ignore_eos,
                    self._marks,
                    top_two=self._keeps,
                )
            return self._engine

    def _vendor_backend(self) -> VendorBackend:
        settings = self.settings
        if settings.checkpoint.startswith(RANDOM_PREFIX):
            raise DsocrError(
                f"{settings.checkpoint}: random weights come without the vendor's code; run ours"
            )
        trusted = (EMBEDDED_CHECKPOINT, *map(Path, settings.vendor.trust_remote_code))
        if Path(settings.checkpoint).resolve() not in {directory.resolve() for directory in trusted}:
            # The backend refuses too; this says it before the first page, and how to go on.
            raise DsocrError(
                f"{settings.checkpoint}: its own code has not been allowed to run; read it, then give "
                f"--vendor.trust_remote_code+={settings.checkpoint} or confirm the switch in the app"
            )
        return VendorBackend(
            Path(settings.checkpoint),
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            attention=settings.vendor_attention,
            interpreter=settings.vendor.interpreter or None,
            timeout_s=settings.vendor.timeout_s,
            trusted_directories=trusted,
            top_two=self._keeps,
        )

    def close(self) -> None:
        """Stop the vendor's worker; give the memory of pages read together back."""
        with self._building:
            self._reader = None
            if self._vendor is not None:
                self._vendor.close()
                self._vendor = None

    # --- one page -------------------------------------------------------------------------------

    def prepare(self, request: OcrRequest) -> PreparedPage:
        """Our road's preprocessing of a page ahead of its turn, on any thread. Raises DsocrError."""
        return self.engine.prepare(request)

    def recognize(
        self,
        road: Road,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """Run one road, holding the device, and keep its result. Raises DsocrError or Cancelled."""
        with self.lock.hold(f"{road} on {request.name}", cancel, on_wait):
            if road == "ours":
                result = self.engine.recognize(request, observer, cancel, prepared)
            else:
                result = self.backend(road).recognize(request, observer, cancel)
        if self._keeps:
            self.results.keep(result)
        return result

    @property
    def reads_together(self) -> bool:
        """Whether our road's engine can read many pages at once."""
        return self.settings.engine == "fast"

    def read_together(
        self,
        source: Source,
        on_result: OnResult,
        slots: int,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Our road on all pages of a source, at most `slots` at once, holding the device.

        Keeps their results. Raises DsocrError for what concerns all pages, Cancelled when `cancel` is set.
        """

        def keep(key: object, outcome: OcrResult | DsocrError) -> None:
            if self._keeps and not isinstance(outcome, DsocrError):
                try:
                    self.results.keep(outcome)
                except DsocrError as error:
                    outcome = error
            on_result(key, outcome)

        reader = self.reader_of(slots)
        with self.lock.hold("ours on many pages", cancel, on_wait):
            reader.read(source, keep, cancel)

    def reader_of(self, slots: int) -> BatchReader:
        """What `read_together` reads with. Raises DsocrError."""
        engine = self.engine
        # It needs triton, which `engine` has asked for.
        from dsocr_core.engine.batch import BatchReader

        with self._building:
            if self._reader is None or self._reader.wanted != slots:
                self._reader = None  # gives its memory back first
                self._reader = BatchReader(engine, slots, self._ignore_eos)
            return self._reader

    def compare(
        self,
        request: OcrRequest,
        roads: Iterable[Road] = ROADS,
        observers: dict[Road, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
        prepared: PreparedPage | None = None,
    ) -> Comparison:
        """Run the roads one after the other. A road's error is kept in the comparison, not raised.

        `prepared` is what `prepare` gave for the same request.

        Raises Cancelled when `cancel` is set.
        """
        results: dict[Road, OcrResult] = {}
        errors: dict[Road, str] = {}
        for road in roads:
            try:
                observer = (observers or {}).get(road)
                results[road] = self.recognize(road, request, observer, cancel, on_wait, prepared)
            except Cancelled:
                raise
            except DsocrError as error:
                errors[road] = str(error)
                if tail := getattr(error, "stderr_tail", ""):
                    log.warning("the vendor worker's last words:\n%s", tail)
            except torch.cuda.OutOfMemoryError:
                errors[road] = f"{request.name}: the GPU is out of memory; choose a smaller preset"
        return Comparison(request, results.get("ours"), results.get("vendor"), errors)


@functools.lru_cache(maxsize=2)
def shared_checkpoint(source: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """A loaded checkpoint, shared by every pipeline of this process; the last two are kept."""
    return load_checkpoint(source, device, dtype)
