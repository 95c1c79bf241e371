"""What roads gave before: kept by what decides it, found again without loading torch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from dsocr_core.outputs.parity import parity
from dsocr_core.outputs.recorded import (
    RecordedResult,
    ResultStore,
    checkpoint_fingerprint,
    file_sha256,
    result_key,
)
from dsocr_core.records import OcrRequest, OcrResult, ParityReport, Road
from dsocr_core.settings import PROJECT_ROOT, RUNS_DIRECTORY, Settings

SHIPPED_RESULTS = PROJECT_ROOT / "data" / "samples" / "recorded"
ROADS: tuple[Road, ...] = ("ours", "vendor")
Facts = dict[str, object]


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

    def joined(self, later: Comparison) -> Comparison:
        """One comparison of the roads of both; where both have one, the later."""
        return replace(
            later,
            ours=later.ours or self.ours,
            vendor=later.vendor or self.vendor,
            errors={**self.errors, **later.errors},
        )


class KnownResults:
    """The results under one set of settings: those of this machine, then those shipped with the samples."""

    def __init__(self, settings: Settings, directory: Path | None = None) -> None:
        self.settings = settings
        self._store = ResultStore(directory or RUNS_DIRECTORY / "results")
        self._shipped = ResultStore(SHIPPED_RESULTS)

    def find(self, request: OcrRequest, roads: Iterable[Road] = ROADS) -> Comparison | None:
        """What an earlier run gave for the same checkpoint, image and settings, if all roads have it."""
        page = self._page_facts(request)  # once: it hashes the image
        found: dict[Road, RecordedResult] = {}
        for road in roads:
            recorded = self._store.find(self._key(road, page)) or self._shipped.find(_shipped_key(road, page))
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

    def keep(self, result: OcrResult) -> None:
        """Keep what a road gave. Raises DsocrError when it cannot be written."""
        key = self._key(result.road, self._page_facts(result.request))
        self._store.save(key, RecordedResult(portable(result), _now()))

    def ship(self, comparison: Comparison, directory: Path) -> None:
        """Keep a comparison for the first start on any machine."""
        store, page = ResultStore(directory), self._page_facts(comparison.request)
        for result in (comparison.ours, comparison.vendor):
            if result is not None:
                key = _shipped_key(result.road, page)
                store.save(key, RecordedResult(portable(result), _now()))

    def key(self, road: Road, request: OcrRequest) -> str:
        """A name for all that decides a road's result on a page, its file's content included.

        Raises DsocrError when the file cannot be read.
        """
        return self._key(road, self._page_facts(request))

    def _key(self, road: Road, page: Facts) -> str:
        settings = self.settings
        device = device_type(settings.device)
        dtype = settings.dtype
        if dtype == "auto":
            dtype = "bfloat16" if device == "cuda" else "float32"
        facts = page | {
            "road": road,
            "device": device,
            "dtype": dtype,
            "engine": settings.engine if road == "ours" else "published",
            "attention": settings.own_attention if road == "ours" else settings.vendor_attention,
            "rotary": settings.rotary if road == "ours" else "published",
        }
        return result_key(facts)

    def _page_facts(self, request: OcrRequest) -> Facts:
        return {
            "checkpoint": shared_fingerprint(self.settings.checkpoint),
            "image": file_sha256(request.image),
            "preset": request.preset,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
            "no_repeat_ngram_size": request.no_repeat_ngram_size,
            # Only where they are asked for, so that earlier results are found as before.
            **{name: True for name in ("eval_mode", "test_compress") if getattr(request, name)},
        }


def _shipped_key(road: Road, page: Facts) -> str:
    """Device and number type are left out: a shipped result greets a first start on any machine."""
    return result_key(page | {"road": road})


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


@functools.lru_cache(maxsize=8)
def shared_fingerprint(source: str) -> str:
    """`checkpoint_fingerprint`, read once a process."""
    return checkpoint_fingerprint(source)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def portable(result: OcrResult) -> OcrResult:
    """The result with paths inside the project written relative to it, so that it reads anywhere."""

    def relative(path: str) -> str:
        place = Path(path)
        if not place.is_absolute() or not place.is_relative_to(PROJECT_ROOT):
            return path
        return str(place.relative_to(PROJECT_ROOT))

    request = replace(result.request, image=Path(relative(str(result.request.image))))
    environment = {key: relative(value) for key, value in result.environment.items()}
    return replace(result, request=request, environment=environment)
