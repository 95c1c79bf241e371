"""A made-up history for the Timing page: known times, a known change of level, hostile names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory

PAGES = tuple(f"page-{number:02d}.png" for number in range(12))
BASE_MS: Mapping[str, float] = {
    Stage.PREPROCESS: 40, Stage.TOKENIZER: 1, Stage.SAM: 60, Stage.CLIP: 20, Stage.PROJECTOR: 2,
    Stage.VISION_FUSION: 1.5, Stage.PREFILL: 150, Stage.DECODE: 1800, Stage.POSTPROCESS: 5,
}  # fmt: skip
HOSTILE = (
    "<b onmouseover=alert(1)>bold</b>.png",
    "'; DROP TABLE runs; --",
    "../../etc/passwd",
    "![x](javascript:alert(1)) :red[red] $x^2$ `code`",
    "=HYPERLINK(1)",
    "😀" * 40,
    "long " + "x" * 4000,
)
FIRST = datetime(2026, 11, 2, 9, 30)
CHANGED = 8
"""From this run on decode is 1.3 times as fast."""
RUNS = 14

_H200 = {
    "engine": "fast", "device": "cuda:0", "gpu": "NVIDIA H200", "host": "lab-1", "dtype": "bfloat16",
    "attention": "flash_attention_2", "preset": "gundam",
}  # fmt: skip


def record(run_id: str, day: float, **fields: Any) -> RunRecord:
    made = RunRecord(
        id=run_id,
        created=(FIRST + timedelta(days=day)).isoformat(),
        source="dsocr",
        command=f"python -m dsocr_core run pages --out {run_id}",
        backends=("fast",),
        settings={"preset": "gundam"},
        git_commit=hashlib.sha1(run_id.encode()).hexdigest(),
    )
    return replace(made, **{**_H200, **fields})


def write(
    root: Path,
    run: RunRecord,
    times: Mapping[tuple[str, str, str], float],
    images: Sequence[Mapping[str, Any]] = (),
    kernels: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A run of `times`: milliseconds by page, backend, stage."""
    pages = {(page, backend) for page, backend, _ in times}
    with RunDirectory.create(root, run) as writer:
        writer.add_rows(
            "readings",
            images
            or [
                {"page": page, "backend": backend, "sha256": f"of {page}"} for page, backend in sorted(pages)
            ],
        )
        writer.add_rows(
            "stage_timings",
            [
                {
                    "page": page, "backend": backend, "stage": stage, "milliseconds": spent, "calls": 1,
                    "inside_prefill": stage in INSIDE_PREFILL, "aggregate": "page",
                }
                for (page, backend, stage), spent in times.items()
            ],
        )  # fmt: skip
        writer.add_rows("kernels", kernels)
    return run.id


def paced(
    seed: int, factors: Mapping[str, float] | None = None, backend: str = "fast", pages: Sequence[str] = PAGES
) -> dict[tuple[str, str, str], float]:
    """Times around BASE_MS: a page is as slow as its number says, with one percent of noise."""
    random = np.random.default_rng(seed)
    return {
        (page, backend, stage): float(
            base * (factors or {}).get(stage, 1.0) * (0.6 + 0.1 * number) * random.normal(1, 0.01)
        )
        for number, page in enumerate(pages)
        for stage, base in BASE_MS.items()
    }


def kernels(stage: str | None, names: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "name": name, "total_ns": total, "instances": 100, "avg_ns": total / 100,
         "med_ns": total / 101, "min_ns": total / 200, "max_ns": total / 50}
        for name, total in names.items()
    ]  # fmt: skip


def make(root: Path) -> None:
    """`run-00` to `run-13` under one condition, and `cpu-both`, `means`, `nsight`, `hostile`, `partial`."""
    for number in range(RUNS):
        factors: dict[str, float] = {Stage.DECODE: 1 / 1.3} if number >= CHANGED else {}
        write(root, record(f"run-{number:02d}", number), paced(number, factors))
    write(
        root,
        record("cpu-both", 3.5, engine="eager", device="cpu", gpu=None, dtype="float32", attention="sdpa",
               preset="small", backends=("eager", "vendor")),
        paced(50, dict.fromkeys(BASE_MS, 4.0), "eager") | paced(51, dict.fromkeys(BASE_MS, 6.0), "vendor"),
    )  # fmt: skip
    _partial(root)
    _means(root)
    write(
        root,
        record(
            "nsight", 5.5, source="nsys", backends=(), profiled=True, engine=None, command="nsys profile x"
        ),
        {},
        kernels=[
            *kernels("decode", {"gemv_kernel<bf16, 1280>": 6e8, "expert_topk": 3e8, "rms_norm": 1e8}),
            *kernels("prefill", {"flash_fwd_kernel<64, 64>": 3e8, "<b>hostile</b> kernel": 1e8}),
        ],
    )
    write(
        root,
        record("hostile", 6.5, engine="<script>alert(1)</script>", gpu="'; DROP TABLE runs; --",
               preset="![x](y) :red[z]", notes=HOSTILE[0], backends=("fast",)),
        paced(60, pages=HOSTILE),
    )  # fmt: skip


def _partial(root: Path) -> None:
    """As `run-13` but slower in prefill; page 0 failed, page 1 is not there, page 2 is another image."""
    times = {
        key: spent for key, spent in paced(70, {Stage.DECODE: 1 / 1.3, Stage.PREFILL: 1.2}).items()
        if key[0] not in PAGES[:2]
    }  # fmt: skip
    images: list[dict[str, Any]] = [
        {"page": page, "backend": "fast", "sha256": f"of {page}"} for page in PAGES[3:]
    ]
    images.append({"page": PAGES[2], "backend": "fast", "sha256": "another"})
    images.append({"page": PAGES[0], "backend": "fast", "error": "out of memory"})
    write(root, record("partial", 4.5, profiled=False, engine="fast", dtype="float16"), times, images)


def _means(root: Path) -> None:
    """An imported run with nothing but means."""
    run = record("means", 2.5, source="llm-perf-opt", engine=None, backends=("vendor",), profiled=True)
    with RunDirectory.create(root, run) as writer:
        writer.add_rows(
            "stage_timings",
            [
                {"backend": "vendor", "stage": stage, "milliseconds": spent,
                 "inside_prefill": stage == "vision",
                 "aggregate": aggregate}
                for stage, mean, std in (("vision", 90, 8), ("prefill", 200, 20), ("decode", 9000, 900))
                for aggregate, spent in (("mean", mean), ("std", std))
            ],
        )  # fmt: skip
