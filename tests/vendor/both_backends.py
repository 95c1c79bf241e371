"""Our eager engine beside the vendor backend on one checkpoint, and what a page must give on both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsocr_core.engine import generate
from dsocr_core.engine.base import EagerEngine, EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import OcrRequest
from dsocr_core.vendor.backend import VendorBackend

NEW_TOKENS = 24
QUICK = [
    ("tiny", (320, 200)), ("small", (641, 640)), ("base", (700, 2100)), ("large", (1240, 1754)),
    *(("gundam", size) for size in ((320, 200), (641, 640), (700, 2100), (1240, 1754))),
]  # fmt: skip
TIE_BF16 = 0.0625
"""A bf16 step at the magnitude of these logits (4 to 8): two tokens closer than this are a tie."""


@contextmanager
def open_backends(
    checkpoint: Path, device: str, dtype: str, interpreter: Path | None = None
) -> Iterator[tuple[EagerEngine, VendorBackend]]:
    """Both backends with eager attention on one device; the vendor's worker ends with the block."""
    loaded = load_checkpoint(str(checkpoint), torch.device(device), getattr(torch, dtype))
    vendor = VendorBackend(
        checkpoint, device=device, dtype=dtype, attention="eager", interpreter=interpreter,
        trusted_directories=(checkpoint,),
    )  # fmt: skip
    try:
        yield EagerEngine(loaded, EngineOptions("eager")), vendor
    finally:
        vendor.close()


@cache
def noise_page(directory: Path, width: int, height: int) -> Path:
    """A page of blurred noise: every pixel matters and no two tiles are alike."""
    rng = np.random.default_rng(width * 10_007 + height)
    small = rng.integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    path = directory / f"{width}x{height}.png"
    Image.fromarray(small).resize((width, height)).save(path)
    return path


def check(backends: tuple[EagerEngine, VendorBackend], page: Path, preset: str) -> None:
    """Hold both to the same inputs and tokens; in bfloat16 up to a tie of our two best tokens."""
    ours, vendor = backends
    request = OcrRequest(page, preset, max_new_tokens=NEW_TOKENS, test_compress=True)
    a, b = ours.recognize(request), vendor.recognize(request)
    report = compare_results(a, b)
    assert [line for line in report.inputs if line.decides and line.state != "equal"] == []
    if report.first_divergence is None:
        assert (a.text_raw, a.text_tokens) == (b.text_raw, b.text_tokens) and a.text_tokens is not None
        return
    step = report.first_divergence.index
    assert a.inputs.dtype == "bfloat16", f"float32 tokens differ at {step}: {report.first_divergence}"
    logits: list[torch.Tensor] = []
    choose = generate.greedy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "greedy", lambda *args: logits.append(args[0].clone()) or choose(*args))
        ours.recognize(request)
    assert abs(float(logits[step][a.token_ids[step]] - logits[step][b.token_ids[step]])) <= TIE_BF16
