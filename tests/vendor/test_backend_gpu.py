"""The vendor's worker on a CUDA device: times from events, the same ids as on a second run."""

from pathlib import Path

import pytest
import torch

from dsocr_core.models.family import FIRST
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrRequest
from dsocr_core.vendor.backend import VendorBackend

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_page_on_the_gpu(checkpoint: Path, page: Path) -> None:
    backend = VendorBackend(checkpoint, device="cuda", trusted_directories=(checkpoint,))
    request = OcrRequest(page, "gundam", max_new_tokens=32)
    try:
        first, second = backend.recognize(request), backend.recognize(request)
    finally:
        backend.close()
    assert first.environment["device"].startswith("cuda")
    assert first.token_ids == second.token_ids
    assert (second.inputs.dtype, second.inputs.rotary_dtype) == ("bfloat16", "bfloat16")
    times = {timing.stage: timing.milliseconds for timing in second.timings}
    inside = sum(times[stage] for stage in FIRST.computed[:-2] if stage in times)
    assert 0 < inside <= times[Stage.PREFILL]
    assert times[Stage.DECODE] > 0


def test_published_way_of_asking_for_the_gpu_is_allowed_there(checkpoint: Path, page: Path) -> None:
    """Code that calls `.cuda()` runs when the device is one."""
    code = checkpoint / "to_gpu.py"
    code.write_text("def to_gpu(x):\n    return x.cuda()\n")
    backend = VendorBackend(checkpoint, device="cuda", trusted_directories=(checkpoint,))
    try:
        assert backend.recognize(OcrRequest(page, "small", max_new_tokens=2)).token_ids
    finally:
        backend.close()
        code.unlink()
