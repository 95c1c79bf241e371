"""Summary of a trace as a run of the history: figures, no tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from dsocr_core.engine.device import resolve_device, resolve_dtype
from dsocr_core.models.devices import device_name
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.records import OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.record import record_run
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings, history_location
from dsocr_core.trace.run import TracePlan


def record_trace(
    settings: Settings, request: OcrRequest, plan: TracePlan, summary: TraceSummary, command: str = ""
) -> str:
    """Write the run and return its name. Raises StorageError when nothing can be written there."""
    device = resolve_device(settings.device)
    record = replace(
        record_run(settings, (), command or None), backends=(), engine=f"trace of {plan.a} and {plan.b}",
        device=str(device), gpu=device_name(device) if device.type == "cuda" else None,
        dtype=str(resolve_dtype(settings.dtype, device)).removeprefix("torch."),
        preset=settings.preset_name, notes=f"Trace of {summary.page}: {summary.sentence}",
    )  # fmt: skip
    first, file = summary.first, files_of(request)[0]
    parts = {name: [asdict(each) for each in getattr(summary, name)] for name in ("causes", "routers")}
    details = {**parts, "only_a": summary.only_a, "only_b": summary.only_b}
    names = ("a", "b", "steps", "equal", "compared", "differing", "sentence")
    row = {
        "page": request.name, "sha256": file and file.sha256, "preset": request.preset,
        **{name: getattr(summary, name) for name in names}, "first_name": first and first.name,
        "first_call": first and first.call, "details": json.dumps(details),
    }  # fmt: skip
    with RunDirectory.create(history_location(settings), record) as run:
        run.add_rows("traces", [row])
        run.add_rows("trace_tensors", [{"page": request.name, **asdict(each)} for each in summary.tensors])
    return record.id
