"""A trace's summary as a run of the history: figures, no tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from dsocr_core.engine.device import resolve_device, resolve_dtype
from dsocr_core.reading.fingerprints import file_of
from dsocr_core.reading.records import OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.record import RunRecord, record_run
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings, history_location
from dsocr_core.trace.run import TracePlan


def record_trace(
    settings: Settings,
    request: OcrRequest,
    plan: TracePlan,
    summary: TraceSummary,
    command: str | None = None,
) -> str:
    """Write the run and return its name. Raises StorageError when nothing can be written there."""
    record = _record(settings, plan, summary, command)
    with RunDirectory.create(history_location(settings), record) as run:
        run.add_rows("traces", [trace_row(request, summary)])
        run.add_rows("trace_tensors", [{"page": request.name, **asdict(row)} for row in summary.tensors])
    return record.id


def trace_row(request: OcrRequest, summary: TraceSummary) -> dict[str, object]:
    """The row of the table `traces`; what has parts is JSON."""
    first, file = summary.first, file_of(request)
    names = ("a", "b", "steps", "equal", "compared", "differing", "sentence")
    details: dict[str, object] = {
        name: [asdict(each) for each in getattr(summary, name)] for name in ("causes", "routers")
    }
    details |= {"only_a": summary.only_a, "only_b": summary.only_b}
    return {
        "page": request.name, "sha256": file and file.sha256, "preset": request.preset,
        **{name: getattr(summary, name) for name in names},
        "first_name": first and first.name, "first_call": first and first.call,
        "details": json.dumps(details),
    }  # fmt: skip


def _record(settings: Settings, plan: TracePlan, summary: TraceSummary, command: str | None) -> RunRecord:
    record = record_run(settings, (), command)
    dtype = resolve_dtype(settings.dtype, resolve_device(settings.device))
    return replace(record, backends=(), engine=f"{plan.a} / {plan.b}", preset=settings.preset_name,
                   dtype=str(dtype).removeprefix("torch."),
                   notes=f"Trace of {summary.page}: {summary.sentence}")  # fmt: skip
