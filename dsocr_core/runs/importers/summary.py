"""Summary of a run of llm-perf-opt as a whole: `metrics.json` or `stakeholder_summary.md`.

In runs under Nsight the Markdown is the only place that has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.reading import as_json, mapping, number, whole

Spread = dict[str, float | None]
"""`mean` and `std` over the pages of a run."""
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")
_VISION = re.compile(r"Vision ≈ (\S+) ± (\S+) ms; do not add to prefill")
_GENERATED = re.compile(r"- Generated: (\S+)")


@dataclass(frozen=True)
class Summary:
    """Summary of a run as a whole. Times in ms; a stage that it does not name was not measured."""

    stages: dict[str, Spread] = field(default_factory=dict)
    """By their stage names, `vision` among them where the note below the table gives it."""
    reported: dict[str, Any] = field(default_factory=dict)
    """Figures of no table of the history: tokens, tokens_per_s, mfu by scope (0..1), peak_tflops."""
    generated: str | None = None
    """ISO 8601 time in UTC."""
    device: str | None = None


def _summary(stages: Mapping[str, Spread], figures: Mapping[str, Any], *more: str | None) -> Summary:
    # A stage of 0 ms did not run or was not timed: its writer has no other way to say so.
    timed = {stage: spread for stage, spread in stages.items() if spread["mean"]}
    return Summary(timed, {name: value for name, value in figures.items() if value}, *more)


def read_metrics(text: str) -> Summary:
    """The figures of a `metrics.json`. Raises InvalidFile."""
    data = as_json(text)
    aggregates = mapping(data.get("aggregates"), "aggregates")

    def spread(value: Any, name: str) -> Spread:
        pair = {of: number(mapping(value, name).get(of), f"{of} of {name}") for of in ("mean", "std")}
        if pair["mean"] is None:
            raise InvalidFile(f"{name} has no mean")
        return pair

    stages = {stage: aggregates.get(f"{stage}_ms") for stage in ("prefill", "decode")}
    stages |= mapping(aggregates.get("stage_ms"), "stage_ms")
    mfu = {"model-level": data.get("mfu_model_level"), **mapping(data.get("mfu_per_stage"), "mfu_per_stage")}
    dims = mapping(data.get("model_dims"), "model_dims")
    figures: dict[str, Any] = {
        name: spread(aggregates[name], name) for name in ("tokens", "tokens_per_s") if name in aggregates
    }
    figures["mfu"] = {scope: value for scope in mfu if (value := number(mfu[scope], f"MFU of {scope}"))}
    figures["peak_tflops"] = number(data.get("peak_tflops"), "peak_tflops")
    figures["model_dims"] = {name: whole(value, name) for name, value in dims.items()}
    return _summary(
        {stage: spread(value, stage) for stage, value in stages.items() if value is not None}, figures
    )


def read_summary(text: str) -> Summary:
    """The figures of a `stakeholder_summary.md`. Raises InvalidFile for a cut or a contradiction."""
    sections = _sections(text)
    if "Aggregates" not in sections or list(sections)[-1:] in ([], ["MFU"]) or "MFU" not in sections:
        raise InvalidFile("cut short: no section 'Aggregates', or none that follows 'MFU'")
    aggregates = _spreads(sections["Aggregates"])
    stages = _spreads(sections.get("Per-Stage Timings (ms)", {}))
    for stage in ("prefill", "decode"):
        overall = aggregates.get(f"{stage.capitalize()} ms")
        if overall is not None and stages.setdefault(stage, overall) != overall:
            raise InvalidFile(f"two times for {stage}: {stages[stage]['mean']} and {overall['mean']} ms")
    if vision := _VISION.search(text):
        stages.setdefault("vision", _spread("vision", [vision[1], vision[2]]))
    environment = {name: cells[0] for name, cells in sections.get("Environment", {}).items()}
    peak = environment.get("Peak TFLOPs (est.)")
    mfu = {scope.lower(): _figure(cells[0], scope) for scope, cells in sections["MFU"].items()}
    figures = {
        "tokens": aggregates.get("Tokens"), "tokens_per_s": aggregates.get("Tokens/s"),
        "mfu": {scope: value for scope, value in mfu.items() if value},
        "peak_tflops": _figure(peak, "peak TFLOPs") if peak else None,
    }  # fmt: skip
    return _summary(stages, figures, _generated(text), environment.get("Device") or None)


def _sections(text: str) -> dict[str, dict[str, list[str]]]:
    """Rows of the tables by the heading above and their first cell. Raises InvalidFile for one cut short."""
    sections: dict[str, dict[str, list[str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        table = [line.strip() for line in lines if line.lstrip().startswith("|")]
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
        for line, cells in zip(table, rows, strict=True):
            if not line.endswith("|") or not 2 <= len(cells) == len(rows[0]):
                raise InvalidFile(f"a table row that is not whole: '{line[:60]}'")
        found = {cells[0]: cells[1:] for cells in rows[2:]}
        if name.strip() in sections or len(found) < len(rows[2:]):
            raise InvalidFile(f"two sections '{name[:40]}', or two rows of one name in it")
        sections[name.strip()] = found
    return sections


def _spreads(rows: Mapping[str, list[str]]) -> dict[str, Spread]:
    return {name: _spread(name, cells) for name, cells in rows.items()}


def _spread(name: str, cells: list[str]) -> Spread:
    if len(cells) != 2:
        raise InvalidFile(f"{name[:40]} has no mean and deviation")
    return {"mean": _figure(cells[0], name), "std": _figure(cells[1], name) if cells[1] else None}


def _figure(cell: str, name: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise InvalidFile(f"{name[:40]}: '{cell[:40]}' is not a number")
    return float(cell)


def _generated(text: str) -> str | None:
    if (found := _GENERATED.search(text)) is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1])
        return (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
    except (ValueError, OverflowError):
        raise InvalidFile(f"'{found[1][:40]}' is not a time") from None
