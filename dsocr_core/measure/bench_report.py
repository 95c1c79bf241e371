"""Figures of a bench: their spread, tables and JSON. One process is not enough for a ratio of engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dsocr_core.base.console import titled_table
from dsocr_core.base.formatting import share, significant
from dsocr_core.models.stages import INSIDE_PREFILL
from dsocr_core.reading.records import OcrResult


@dataclass(frozen=True)
class Spread:
    """Median and percentiles of a figure's samples."""

    median: float
    min: float
    p5: float
    p95: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Spread of samples; None without samples."""
        if not samples:
            return None
        p5, median, p95 = np.percentile(samples, (5, 50, 95))
        return cls(float(median), min(samples), float(p5), float(p95), len(samples))


@dataclass(frozen=True)
class StageFigures:
    milliseconds: Spread
    calls: int
    flops: int | None
    flops_per_s: float | None
    matmul_share: float | None
    """Share of the measured rate of a large matrix product."""


@dataclass(frozen=True)
class EngineFigures:
    """Figures of one engine. Vision stages are part of prefill. None is not measured."""

    name: str
    checkpoint: str
    dtype: str
    attention: str
    prompt_tokens: int
    new_tokens: int
    stages: dict[str, StageFigures]
    ms_per_token: Spread | None
    tokens_per_s: Spread | None
    """Tokens a second of decode steps; the first token belongs to prefill."""
    pages_per_s: Spread | None
    """Whole pages, from opening the file to the text."""
    bytes_per_token: float | None
    """Bytes of weights and cache a token, by arithmetic, in the middle of the page."""
    bytes_per_s: float | None
    copy_share: float | None
    """Share of the measured rate of a large copy."""
    environment: dict[str, str]
    peak_memory_bytes: int | None = None
    streams: int = 1
    """Pages decoded together. With more than one, ms and bytes a token are those of steps in which all were
    live, `tokens_per_s` is of all of them, and a stage's times are a page's own among the others."""


@dataclass(frozen=True)
class DeviceFigures:
    name: str
    torch: str
    copy_bytes_per_s: float | None
    matmul_flops_per_s: float | None
    matmul_dtype: str


@dataclass(frozen=True)
class Bench:
    """Result of a bench. `results` are those of each engine's measured passes, in order."""

    preset: str
    size: tuple[int, int]
    grid: tuple[int, int]
    tokens: int
    batch: int
    repeat: int
    nvtx_only: bool
    device: DeviceFigures
    engines: tuple[EngineFigures, ...]
    results: dict[str, tuple[OcrResult, ...]]
    pages: int = 1
    """Pages of one pass."""
    published_flops: dict[str, list[int]] = field(default_factory=dict)
    """FLOPs of each call of the published modules on a short page, like the worker's `Result.flops`."""

    def document(self) -> dict[str, Any]:
        """JSON-ready values, without those in a run's tables."""
        known = asdict(replace(self, results={}, published_flops={}))
        return {name: known[name] for name in known if name not in ("results", "published_flops")}

    def print(self, console: Console) -> None:
        """Print tables, at most 100 columns wide."""
        columns, rows = self.grid
        pages = f"{self.pages} pages a pass" if self.pages > 1 else "1 page a pass"
        device, (width, height) = self.device, self.size
        for line in (
            f"{width} x {height} under {self.preset}, grid {columns} x {rows}, {self.tokens} new tokens; "
            f"{self.repeat} passes, {pages}",
            f"{device.name}, torch {device.torch}: copies {_number(device.copy_bytes_per_s, 1e9)} GB/s, "
            f"multiplies {_number(device.matmul_flops_per_s, 1e12)} TFLOP/s in {device.matmul_dtype}",
        ):
            console.print(line, highlight=False, markup=False, width=100)
        for engine in self.engines:
            console.print(_stage_table(engine))
        console.print(_engine_table(self.engines))


def _stage_table(engine: EngineFigures) -> Table:
    title = (
        f"{engine.name}: {engine.dtype}, {engine.attention} attention, "
        f"{engine.prompt_tokens} prompt tokens, {engine.new_tokens} new"
    )
    if engine.streams > 1:
        title += f", {engine.streams} pages together"
    table = titled_table(title, "Stage", "Median", "Min", "5 %", "95 %", "Calls", "TFLOP/s", "Of matmul")
    for name, stage in engine.stages.items():
        spread = stage.milliseconds
        inside = name in {stage.value for stage in INSIDE_PREFILL}
        table.add_row(
            f"  {name}" if inside else name,
            *(f"{value:.4g} ms" for value in (spread.median, spread.min, spread.p5, spread.p95)),
            str(stage.calls),
            _number(stage.flops_per_s, 1e12),
            share(stage.matmul_share, "-"),
        )
    if not engine.stages:
        table.add_row("not measured", *["-"] * 7)
    return table


def _engine_table(engines: tuple[EngineFigures, ...]) -> Table:
    table = titled_table(
        "Whole pages", "Engine", "ms/token", "Tokens/s", "5-95 %", "Pages/s", "MB/token", "Of copy",
        "Peak MB",
    )  # fmt: skip
    for engine in engines:
        rate = engine.tokens_per_s
        step, tokens, pages = (
            _number(spread.median if spread else None)
            for spread in (engine.ms_per_token, rate, engine.pages_per_s)
        )
        table.add_row(
            engine.name, step, tokens, f"{_number(rate.p5)}-{_number(rate.p95)}" if rate else "-", pages,
            _number(engine.bytes_per_token, 1e6), share(engine.copy_share, "-"),
            _number(engine.peak_memory_bytes, 1e6),
        )  # fmt: skip
    return table


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else significant(value / unit)
