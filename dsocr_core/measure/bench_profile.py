"""One warm page under torch's profiler, kept as a Chrome trace for Perfetto and `history import`.

Stages are ranges of the host. The profiler takes time itself: the trace's times are larger than the bench's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from dsocr_core.backends.on_device import OnDevice
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest


class _Ranges(Observer):
    """Each stage as a range of the profiler."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def stage_started(self, stage: Stage) -> None:
        self._open.append(record_function(stage.value))
        self._open[-1].__enter__()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        self._open.pop().__exit__(None, None, None)


def profile_page(
    backend: OnDevice, request: OcrRequest, file: Path, cancel: CancelToken | None = None
) -> None:
    """Read the page once and write its trace. Raises DsocrError where it cannot be written."""
    activities = [ProfilerActivity.CPU]
    if backend.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        backend.read(request, _Ranges(), cancel)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(file))
    except (OSError, RuntimeError) as error:
        raise DsocrError(f"{file}: the trace cannot be written ({error}); name another file") from error
