"""One page down both roads: request -> results -> parity -> artifacts, and results found again."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from dsocr_core.engine.backend import EagerEngine
from dsocr_core.engine.checkpoint import RANDOM_PREFIX, Checkpoint, load_checkpoint
from dsocr_core.engine.device import DeviceLock, device_lock, resolve_device, resolve_dtype
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.outputs.parity import parity
from dsocr_core.outputs.recorded import (
    RecordedResult,
    ResultStore,
    checkpoint_fingerprint,
    file_sha256,
    result_key,
)
from dsocr_core.records import (
    Backend,
    CancelToken,
    Observer,
    OcrRequest,
    OcrResult,
    ParityReport,
    Road,
)
from dsocr_core.settings import EMBEDDED_CHECKPOINT, PROJECT_ROOT, Settings
from dsocr_core.vendor.backend import VendorBackend

RUNS_DIRECTORY = PROJECT_ROOT / "data" / "runs"
SHIPPED_RESULTS = PROJECT_ROOT / "data" / "samples" / "recorded"
ROADS: tuple[Road, ...] = ("ours", "vendor")


@dataclass(frozen=True)
class Comparison:
    """What became of one page. A road that was not asked for or that failed has no result."""

    request: OcrRequest
    ours: OcrResult | None = None
    vendor: OcrResult | None = None
    errors: dict[Road, str] = field(default_factory=dict)
    recorded_at: str | None = None
    """ISO 8601 UTC time when everything here was found again instead of run; None when it was run."""

    @functools.cached_property
    def report(self) -> ParityReport | None:
        """Parity of both results; None unless both roads have one."""
        return parity(self.ours, self.vendor) if self.ours and self.vendor else None


class Pipeline:
    """Both roads under one set of settings. Models load on first use and stay; thread-safe."""

    def __init__(self, settings: Settings, results: Path = RUNS_DIRECTORY / "results") -> None:
        self.settings = settings
        self._store = ResultStore(results)
        self._shipped = ResultStore(SHIPPED_RESULTS)
        self._building = threading.Lock()
        self._engine: EagerEngine | None = None
        self._vendor: VendorBackend | None = None

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

    @property
    def vendor_attention(self) -> str:
        """The published decoder has no SDPA variant; its eager one stands against ours."""
        return self.settings.attention if self.settings.attention == "flash_attention_2" else "eager"

    def backend(self, road: Road) -> Backend:
        """The road, its model loaded (ours) or its worker ready to start (vendor). Raises DsocrError."""
        with self._building:
            if road == "ours":
                if self._engine is None:
                    settings = self.settings
                    self._engine = EagerEngine(
                        shared_checkpoint(settings.checkpoint, self.device, self.dtype),
                        settings.attention,
                        torch.float32 if settings.rotary == "float32" else None,
                        settings.max_pixels,
                    )
                return self._engine
            if self._vendor is None:
                self._vendor = self._vendor_backend()
            return self._vendor

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
            attention=self.vendor_attention,
            interpreter=settings.vendor.interpreter or None,
            timeout_s=settings.vendor.timeout_s,
            trusted_directories=trusted,
        )

    def close(self) -> None:
        """Stop the vendor's worker."""
        with self._building:
            if self._vendor is not None:
                self._vendor.close()
                self._vendor = None

    # --- one page -------------------------------------------------------------------------------

    def recognize(
        self,
        road: Road,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> OcrResult:
        """Run one road, holding the device, and keep its result. Raises DsocrError or Cancelled."""
        with self.lock.hold(f"{road} on {request.name}", cancel, on_wait):
            result = self.backend(road).recognize(request, observer, cancel)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self._store.save(self._key(road, request), RecordedResult(_portable(result), created))
        return result

    def compare(
        self,
        request: OcrRequest,
        roads: Iterable[Road] = ROADS,
        observers: dict[Road, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Comparison:
        """Run the roads one after the other. A road's error is kept in the comparison, not raised.

        Raises Cancelled when `cancel` is set.
        """
        results: dict[Road, OcrResult] = {}
        errors: dict[Road, str] = {}
        for road in roads:
            try:
                observer = (observers or {}).get(road)
                results[road] = self.recognize(road, request, observer, cancel, on_wait)
            except Cancelled:
                raise
            except DsocrError as error:
                errors[road] = str(error)
            except torch.cuda.OutOfMemoryError:
                errors[road] = f"{request.name}: the GPU is out of memory; choose a smaller preset"
        return Comparison(request, results.get("ours"), results.get("vendor"), errors)

    def recorded(self, request: OcrRequest, roads: Iterable[Road] = ROADS) -> Comparison | None:
        """What an earlier run gave for the same checkpoint, image and settings, if all roads have it."""
        found: dict[Road, RecordedResult] = {}
        for road in roads:
            recorded = self._store.find(self._key(road, request)) or self._shipped.find(
                self._shipped_key(road, request)
            )
            if recorded is None:
                return None
            found[road] = replace(recorded, result=replace(recorded.result, request=request))
        if not found:
            return None
        results = {road: recorded.result for road, recorded in found.items()}
        return Comparison(
            request,
            results.get("ours"),
            results.get("vendor"),
            recorded_at=min(recorded.created for recorded in found.values()),
        )

    def ship(self, comparison: Comparison, directory: Path = SHIPPED_RESULTS) -> None:
        """Keep a comparison beside the samples, for the first start on any machine."""
        store, created = ResultStore(directory), datetime.now(UTC).isoformat(timespec="seconds")
        for road, result in (("ours", comparison.ours), ("vendor", comparison.vendor)):
            if result is not None:
                key = self._shipped_key(road, comparison.request)
                store.save(key, RecordedResult(_portable(result), created))

    # --- how results are found again ------------------------------------------------------------

    def _shipped_key(self, road: str, request: OcrRequest) -> str:
        """Device and number type are left out: a shipped result greets a first start on any machine."""
        return result_key(self._page_facts(road, request))

    def _key(self, road: Road, request: OcrRequest) -> str:
        facts = self._page_facts(road, request) | {
            "device": self.device.type,
            "dtype": str(self.dtype),
            "attention": self.settings.attention if road == "ours" else self.vendor_attention,
            "rotary": self.settings.rotary if road == "ours" else "published",
        }
        return result_key(facts)

    def _page_facts(self, road: str, request: OcrRequest) -> dict[str, object]:
        return {
            "road": road,
            "checkpoint": shared_fingerprint(self.settings.checkpoint),
            "image": file_sha256(request.image),
            "preset": request.preset,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
            "no_repeat_ngram_size": request.no_repeat_ngram_size,
        }


@functools.lru_cache(maxsize=2)
def shared_checkpoint(source: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """A loaded checkpoint, shared by every pipeline of this process; the last two are kept."""
    return load_checkpoint(source, device, dtype)


@functools.lru_cache(maxsize=8)
def shared_fingerprint(source: str) -> str:
    """`checkpoint_fingerprint`, read once a process."""
    return checkpoint_fingerprint(source)


def _portable(result: OcrResult) -> OcrResult:
    """The result with paths inside the project written relative to it, so that it reads anywhere."""

    def relative(path: str) -> str:
        place = Path(path)
        if not place.is_absolute() or not place.is_relative_to(PROJECT_ROOT):
            return path
        return str(place.relative_to(PROJECT_ROOT))

    request = replace(result.request, image=Path(relative(str(result.request.image))))
    environment = {key: relative(value) for key, value in result.environment.items()}
    return replace(result, request=request, environment=environment)
