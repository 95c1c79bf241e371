"""A made-up history for the Timing page: known times, a known change of level, hostile names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from tests.support import made_up_runs
from tests.support.made_up_runs import HOSTILE, timing

PAGES = tuple(f"page-{number:02d}.png" for number in range(12))
BASE_MS: Mapping[str, float] = {
    Stage.PREPROCESS: 40, Stage.TOKENIZER: 1, Stage.SAM: 60, Stage.CLIP: 20, Stage.PROJECTOR: 2,
    Stage.VISION_FUSION: 1.5, Stage.PREFILL: 150, Stage.DECODE: 1800, Stage.POSTPROCESS: 5,
}  # fmt: skip
FASTER = {Stage.DECODE: 1 / 1.3}
"""Decode from `run-08` on."""
Times = Mapping[tuple[str, str, str], float]
"""Milliseconds by page, backend and stage."""


def record(run_id: str, day: float, **fields: Any) -> RunRecord:
    """A run on an H200, so many days after the first."""
    standard: dict[str, Any] = {
        "created": (datetime(2026, 11, 2, 9, 30) + timedelta(days=day)).isoformat(), "backends": ("fast",),
        "command": f"python -m dsocr_core run pages --out {run_id}", "settings": {"preset": "gundam"},
        "git_commit": hashlib.sha1(run_id.encode()).hexdigest(), "engine": "fast", "device": "cuda:0",
        "gpu": "NVIDIA H200", "host": "lab-1", "dtype": "bfloat16", "attention": "flash_attention_2",
        "preset": "gundam",
    }  # fmt: skip
    return made_up_runs.record(run_id, **standard | fields)


def write(
    root: Path,
    run: RunRecord,
    times: Times,
    images: Sequence[Mapping[str, Any]] = (),
    kernels: Sequence[Mapping[str, Any]] = (),
) -> None:
    pages = sorted({(page, backend) for page, backend, _ in times})
    images = images or [{"page": page, "backend": name, "sha256": f"of {page}"} for page, name in pages]
    with RunDirectory.create(root, run) as writer:
        writer.add_rows("readings", images)
        writer.add_rows("timings", [
            timing(page, stage, spent, backend=backend, inside_prefill=stage in INSIDE_PREFILL)
            for (page, backend, stage), spent in times.items()
        ])  # fmt: skip
        writer.add_rows("kernels", kernels)


def paced(seed: int, factors: Mapping[str, float] | None = None, pages: Sequence[str] = PAGES) -> Times:
    """Times around BASE_MS: a page is as slow as its number says, with one percent of noise."""
    random = np.random.default_rng(seed)
    return {
        (page, "fast", stage): float(
            base * (factors or {}).get(stage, 1.0) * (0.6 + 0.1 * number) * random.normal(1, 0.01)
        )
        for number, page in enumerate(pages)
        for stage, base in BASE_MS.items()
    }


def kernels(stage: str, names: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rows of kernels with these nanoseconds in all."""
    return [
        {"stage": stage, "name": name, "total_ns": total, "instances": 100, "avg_ns": total / 100}
        for name, total in names.items()
    ]


def make(root: Path) -> None:
    """`run-00` to `run-13` under one condition, and `profiled`, `nsight`, `hostile`, `partial`."""
    for number in range(14):
        write(root, record(f"run-{number:02d}", number), paced(number, FASTER if number >= 8 else {}))
    # As `run-13`, but page 0 failed, page 1 is not there, page 2 is another image.
    times = {key: ms for key, ms in paced(70, FASTER).items() if key[0] not in PAGES[:2]}
    images = [{"page": page, "backend": "fast", "sha256": f"of {page}"} for page in PAGES[3:]]
    images += [
        {"page": PAGES[2], "backend": "fast", "sha256": "another"},
        {"page": PAGES[0], "backend": "fast", "error": "out of memory"},
    ]
    write(root, record("partial", 4.5, dtype="float16"), times, images)
    write(root, record("profiled", 2.5, profiled=True), paced(80))
    profile = record("nsight", 5.5, source="nsys", backends=(), profiled=True, engine=None)
    write(root, profile, {}, kernels=kernels("decode", {"gemv<1280>": 6e8, "<b>hostile</b> kernel": 1e8}))
    fields = {"engine": HOSTILE[3], "gpu": HOSTILE[2], "preset": HOSTILE[-4], "notes": HOSTILE[-4]}
    write(root, record("hostile", 6.5, **fields), paced(60, pages=[text for text in HOSTILE if text.strip()]))
