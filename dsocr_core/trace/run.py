"""A trace as a whole: A reads, B reads with A's tokens, the dumps are compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dsocr_core.backends.on_device import published_backend, shared_checkpoint
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import Temporary
from dsocr_core.base.specs import Attention
from dsocr_core.engine.base import EagerEngine, Engine, EngineOptions
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.engine.device import device_lock, resolve_device, resolve_dtype
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config
from dsocr_core.models.taps.files import Dump
from dsocr_core.read.session import Session
from dsocr_core.reading.records import SIDES, CancelToken, OcrRequest, Side
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.settings import Settings
from dsocr_core.trace.causes import causes_of, sentence_of
from dsocr_core.trace.compare import Measured, compare, unpaired
from dsocr_core.trace.names import in_vision, taps_of
from dsocr_core.trace.sides import Task, Way, oracle_engine, trace_engine, trace_vendor

USUAL_STEPS = 8
MOST_STEPS = 500
"""Most decode steps of a trace up to the first divergence."""


class TraceError(DsocrError):
    """A trace that cannot be made as asked; says what to give instead."""


@dataclass(frozen=True)
class TracePlan:
    """Plan of a trace. `only` are names of taps, whole or up to a dot. `out` keeps the tensors in `out/a` and
    `out/b`."""

    a: Way = "eager"
    b: Way = "vendor"
    steps: int = USUAL_STEPS
    only: tuple[str, ...] = ()
    out: Path | None = None

    @property
    def calls_needed(self) -> int:
        """Decode steps to run: none for vision alone, which runs in the prefill."""
        vision = bool(self.only) and all(map(in_vision, self.only))
        return 0 if vision else self.steps


Progress = Callable[[str, int, int], None]
"""Callback with the side (`A eager`, `comparing`), the current call and the number of calls."""


def trace_page(
    settings: Settings,
    request: OcrRequest,
    plan: TracePlan,
    progress: Progress = lambda side, call, calls: None,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> TraceSummary:
    """Trace one page. Raises DsocrError, or Cancelled when `cancel` is set."""
    settings = replace(settings, attention=attention_for(settings, plan))
    device, steps = resolve_device(settings.device), plan.calls_needed
    about = {"page": request.name, "preset": request.required.preset, "prompt": request.required.prompt}
    _check(plan, load_config(Path(_of_side(settings, "a", plan.a).checkpoint.removeprefix(RANDOM_PREFIX))))

    def heard(side: str, calls: int) -> Callable[[int], None]:
        return lambda call: progress(side, call, calls)

    with ExitStack() as stack:
        directory = plan.out or Path(stack.enter_context(Temporary("trace")))
        stack.enter_context(device_lock(device).hold(f"trace of {request.name}", cancel, on_wait))
        tokens: tuple[int, ...] = ()
        for side, way in zip(SIDES, (plan.a, plan.b), strict=True):
            on_call = heard(f"{side.upper()} {way}", steps + 1)
            task = Task(request, steps, directory / side, tokens, plan.only, on_call, cancel, about)
            own = _of_side(settings, side, way)
            if way == "vendor":
                vendor = stack.enter_context(closing(published_backend(own)))
                tokens = trace_vendor(vendor.vendor, task)
            elif way == "fast":
                require_fast_engine(str(device))
                # It needs triton, which was just checked.
                from dsocr_core.trace.fast import trace_fast

                tokens = trace_fast(_engine(own), task)
            else:
                engine = _engine(own)
                tokens = trace_engine(oracle_engine(engine) if way == "float32" else engine, task, way)
        a, b = (Dump(directory / side) for side in SIDES)
        on_call = heard("comparing", min(a.calls, b.calls))
        return compare_dumps(a, b, device, request.name, (), cancel, on_call, (plan.a, plan.b))


def _engine(settings: Settings) -> Engine:
    """Eager engine with a side's settings, on weights that this process shares."""
    device = resolve_device(settings.device)
    rotary = torch.float32 if settings.rotary == "float32" else None
    options = EngineOptions(settings.own_attention, rotary, settings.max_pixels)
    dtype = resolve_dtype(settings.dtype, device)
    return EagerEngine(shared_checkpoint(settings.checkpoint, device, dtype), options)


def _of_side(settings: Settings, side: Side, way: Way) -> Settings:
    """Settings of the side, if the backend on that side is the one that is traced."""
    return settings.of_side(side) if settings.spec(side).kind == way else settings


def _check(plan: TracePlan, config: ModelConfig) -> None:
    """Raise TraceError for names that are no taps, before anything is computed."""
    names = [tap.name for tap in taps_of(config)]
    for part in plan.only:
        if not any(f"{name}.".startswith(f"{part}.") for name in names):
            raise TraceError(f"--only {part}: no such block; give one like sam or clip.block0")


def divergence_steps(
    settings: Settings,
    request: OcrRequest,
    plan: TracePlan,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> int:
    """Decode steps up to the first token in which A and B diverge; `plan.steps` where they do not.

    Raises DsocrError where a side cannot read, Cancelled when `cancel` is set.
    """
    if "float32" in (plan.a, plan.b) or plan.a == plan.b:
        return plan.steps
    sides = replace(settings, a=plan.a, b=plan.b, attention=attention_for(settings, plan))
    found = ResultCache(sides).find(request)
    if found is None:
        with closing(Session(sides)) as session:
            found = session.compare(request, cancel=cancel, on_wait=on_wait)
    if found.report is None:
        raise TraceError("; ".join(found.errors.values()))
    divergence = found.report.first_divergence
    # Step n chooses token n.
    return plan.steps if divergence is None else min(divergence.index, MOST_STEPS)


def compare_directories(
    a: Path,
    b: Path,
    only: tuple[str, ...] = (),
    cancel: CancelToken | None = None,
) -> TraceSummary:
    """Compare dumps of other programs by the names of their tensors. Raises DsocrError."""
    summary = compare_dumps(Dump(a), Dump(b), page=a.name, only=only, cancel=cancel)
    if not summary.compared:
        raise TraceError(f"{a} and {b} have no tensor of the same name: rename those of one (docs/trace.md)")
    return summary


def compare_dumps(
    a: Dump,
    b: Dump,
    device: torch.device | None = None,
    page: str = "",
    only: tuple[str, ...] = (),
    cancel: CancelToken | None = None,
    progress: Callable[[int], None] = lambda call: None,
    ways: tuple[str, str] | None = None,
) -> TraceSummary:
    """Summary of two dumps. Raises Cancelled when `cancel` is set."""
    found: list[Measured] = []
    for one in compare(a, b, device, progress):
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if not only or any(f"{one.row.name}.".startswith(f"{part}.") for part in only):
            found.append(one)
    first = next((one.row for one in found if one.row.differs), None)
    causes, steps = causes_of(found, a.about, b.about), max(0, min(a.calls, b.calls) - 1)
    ways = ways or (str(a.about.get("backend", "a")), str(b.about.get("backend", "b")))
    only_a, only_b = unpaired(a, b)
    return TraceSummary(
        page or str(a.about.get("page", "")), *ways, steps, tuple(one.row for one in found), first, causes,
        sentence_of(first, causes, len(found), steps),
        tuple(one.changed for one in found if one.changed is not None), only_a, only_b,
    )  # fmt: skip


def attention_for(settings: Settings, plan: TracePlan) -> Attention:
    """The chosen attention; by default one that the published decoder has."""
    return "eager" if settings.attention == "auto" and "vendor" in (plan.a, plan.b) else settings.attention
