"""Summary of a run of llm-perf-opt as a whole: `metrics.json` or `stakeholder_summary.md`.

In runs under Nsight the summary is the only place that has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.reading import as_json, mapping, number, whole

_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")
_VISION = re.compile(r"Vision ≈ (\S+) ± (\S+) ms; do not add to prefill")
_GENERATED = re.compile(r"- Generated: (\S+)")
_RULE = re.compile(r":?-+:?")


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the pages of a run."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Summary:
    """Summary of a run as a whole. Times in ms; a stage that it does not name was not measured."""

    generated: str | None = None
    """ISO 8601 time in UTC."""
    device: str | None = None
    stages: dict[str, Spread] = field(default_factory=dict)
    """By their stage names, `vision` among them where the note below the table gives it."""
    reported: dict[str, Any] = field(default_factory=dict)
    """Figures of no table of the history: tokens, tokens_per_s, mfu by scope (0..1), peak_tflops."""

    @classmethod
    def of(cls, stages: Mapping[str, Spread], figures: Mapping[str, Any], **more: str | None) -> Summary:
        # A stage of 0 ms did not run or was not timed: its writer has no other way to say so.
        timed = {stage: spread for stage, spread in stages.items() if spread.mean > 0}
        return cls(stages=timed, reported={name: value for name, value in figures.items() if value}, **more)


def read_metrics(text: str) -> Summary:
    """The figures of a `metrics.json`. Raises InvalidFile."""
    data = as_json(text)
    aggregates = mapping(data.get("aggregates"), "aggregates")
    stages = mapping(aggregates.get("stage_ms"), "stage_ms")
    overall = {stage: aggregates.get(f"{stage}_ms") for stage in ("prefill", "decode")}
    stages = {stage: value for stage, value in overall.items() if value is not None} | stages
    mfu = {"model-level": data.get("mfu_model_level"), **mapping(data.get("mfu_per_stage"), "mfu_per_stage")}
    dims = mapping(data.get("model_dims"), "model_dims")
    figures: dict[str, Any] = {
        **{
            name: asdict(_spread(aggregates[name], name))
            for name in ("tokens", "tokens_per_s")
            if name in aggregates
        },
        "mfu": {scope: value for scope, given in mfu.items() if (value := number(given, f"MFU of {scope}"))},
        "peak_tflops": number(data.get("peak_tflops"), "peak_tflops"),
        "model_dims": {name: whole(value, name) for name, value in dims.items()},
    }
    return Summary.of({stage: _spread(value, stage) for stage, value in stages.items()}, figures)


def _spread(data: Any, name: str) -> Spread:
    pair = mapping(data, name)
    mean = number(pair.get("mean"), f"mean of {name}")
    if mean is None:
        raise InvalidFile(f"{name} has no mean")
    return Spread(mean, number(pair.get("std"), f"std of {name}"))


def read_summary(text: str) -> Summary:
    """The figures of a `stakeholder_summary.md`. Raises InvalidFile for one that is cut off."""
    sections = _sections(text)
    for name in ("Aggregates", "MFU"):
        if name not in sections:
            raise InvalidFile(f"no section '{name}'")
    if list(sections)[-1] == "MFU":
        raise InvalidFile("cut short: nothing follows the section 'MFU'")
    environment = {key: value for key, value, *_ in _rows(sections.get("Environment", []), 2)}
    aggregates = _spreads(sections["Aggregates"])
    stages = _spreads(sections.get("Per-Stage Timings (ms)", []))
    for stage in ("prefill", "decode"):
        overall = aggregates.get(f"{stage.capitalize()} ms")
        if overall is not None and stages.setdefault(stage, overall) != overall:
            raise InvalidFile(f"two times for {stage}: {stages[stage].mean} and {overall.mean} ms")
    if vision := _VISION.search(text):
        stages.setdefault("vision", Spread(_figure(vision[1], "vision"), _figure(vision[2], "vision")))
    peak = environment.get("Peak TFLOPs (est.)")
    spreads = {"tokens": aggregates.get("Tokens"), "tokens_per_s": aggregates.get("Tokens/s")}
    mfu = {scope.lower(): _figure(cell, f"MFU of {scope}") for scope, cell, *_ in _rows(sections["MFU"], 2)}
    figures: dict[str, Any] = {
        **{name: asdict(spread) for name, spread in spreads.items() if spread},
        "mfu": {scope: value for scope, value in mfu.items() if value > 0},
        "peak_tflops": _figure(peak, "peak TFLOPs") if peak else None,
    }
    return Summary.of(stages, figures, generated=_generated(text), device=environment.get("Device") or None)


def _sections(text: str) -> dict[str, list[str]]:
    """Lines below each `## Heading`. Raises InvalidFile when a heading appears twice."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            name = line[3:].strip()
            if name in sections:
                raise InvalidFile(f"two sections '{name[:40]}'")
            lines = sections[name] = []
        else:
            lines.append(line)
    return sections


def _rows(lines: list[str], columns: int) -> list[tuple[str, ...]]:
    """Cells of a section's table without its two header lines. Raises InvalidFile for a row cut short."""
    table = [line.strip() for line in lines if line.lstrip().startswith("|")]
    rows = []
    for line in table:
        cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
        if not line.endswith("|") or len(cells) != columns:
            raise InvalidFile(f"a table row that is not {columns} cells: '{line[:60]}'")
        rows.append(cells)
    if rows and (len(rows) < 2 or not all(_RULE.fullmatch(cell) for cell in rows[1])):
        raise InvalidFile("a table without its header")
    return rows[2:]


def _spreads(lines: list[str]) -> dict[str, Spread]:
    spreads: dict[str, Spread] = {}
    for name, mean, std in _rows(lines, 3):
        if name in spreads:
            raise InvalidFile(f"two rows for '{name[:40]}'")
        spreads[name] = Spread(_figure(mean, name), _figure(std, name) if std else None)
    return spreads


def _figure(cell: str, name: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise InvalidFile(f"{name[:40]}: '{cell[:40]}' is not a number")
    return float(cell)


def _generated(text: str) -> str | None:
    found = _GENERATED.search(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1])
        return (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
    except (ValueError, OverflowError):
        raise InvalidFile(f"'{found[1][:40]}' is not a time") from None
