"""A trace from its beginning to its summary: A reads, B reads with A's tokens, the dumps are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dsocr_core.backends.on_device import PublishedBackend, published_backend, shared_checkpoint
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.temporary import Temporary
from dsocr_core.engine.base import Engine, EngineOptions
from dsocr_core.engine.device import device_lock, resolve_device, resolve_dtype
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.models.taps.files import Dump, DumpError
from dsocr_core.read.session import Session
from dsocr_core.reading.parity_records import Divergence
from dsocr_core.reading.records import SIDES, CancelToken, OcrRequest, Side
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.settings import Attention, Settings
from dsocr_core.trace.causes import causes_of, sentence_of
from dsocr_core.trace.compare import Measured, compare, unpaired
from dsocr_core.trace.names import in_vision, taps_of
from dsocr_core.trace.sides import Task, Way, oracle_engine, trace_engine, trace_vendor

USUAL_STEPS = 8
MOST_STEPS = 500
"""Decode steps of a trace that goes to the first divergence."""


class TraceError(DsocrError):
    """A trace that cannot be made as asked; says what to give instead."""


@dataclass(frozen=True)
class TracePlan:
    """Plan of a trace. `only` are names of taps or their beginnings up to a dot; `out` keeps the tensors, in
    `out/a` and `out/b`."""

    a: Way = "eager"
    b: Way = "vendor"
    steps: int = USUAL_STEPS
    only: tuple[str, ...] = ()
    out: Path | None = None

    @property
    def calls_needed(self) -> int:
        """Decode steps to run: none where only vision is asked for, which runs in the prefill alone."""
        vision = bool(self.only) and all(map(in_vision, self.only))
        return 0 if vision else self.steps


Progress = Callable[[str, int, int], None]
"""Side (`A eager`, `comparing`), call under way, calls in all."""


def trace_page(
    settings: Settings,
    request: OcrRequest,
    plan: TracePlan,
    progress: Progress = lambda side, call, calls: None,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
    vendor: PublishedBackend | None = None,
) -> TraceSummary:
    """Trace one page. Raises DsocrError, or Cancelled when `cancel` is set.

    The worker of a `vendor` under the same settings is used and stays.
    """
    settings = replace(settings, attention=attention_for(settings, plan))
    device = resolve_device(settings.device)
    with ExitStack() as exit_:
        directory = plan.out
        if directory is None:
            temporary = Temporary("trace")
            directory = Path(exit_.enter_context(temporary))
        exit_.enter_context(device_lock(device).hold(f"trace of {request.name}", cancel, on_wait))
        sides = exit_.enter_context(_sides(settings, plan, vendor))
        sides.check(plan)
        dumps: list[Dump] = []
        tokens: tuple[int, ...] = ()
        for side, way in zip(SIDES, (plan.a, plan.b), strict=True):
            name = f"{side.upper()} {way}"
            task = _task(plan, request, directory / side, tokens, name, progress, cancel)
            tokens = sides.trace(side, task)
            dumps.append(_opened(task.directory))
        calls = min(dump.calls for dump in dumps)
        summary = compare_dumps(
            dumps[0], dumps[1], device, request.name, ways=(plan.a, plan.b), cancel=cancel,
            progress=lambda call: progress("comparing", call, calls),
        )  # fmt: skip
    return summary


def divergence_steps(
    settings: Settings,
    request: OcrRequest,
    plan: TracePlan,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> int:
    """Decode steps up to the token in which A and B diverge, from readings of both; `plan.steps` without one.

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
    return steps_to(found.report.first_divergence, plan.steps)


def steps_to(divergence: Divergence | None, otherwise: int) -> int:
    """Decode steps that a trace takes to reach a divergence: step n chooses token n."""
    return otherwise if divergence is None else min(divergence.index, MOST_STEPS)


def compare_directories(
    a: Path,
    b: Path,
    only: tuple[str, ...] = (),
    cancel: CancelToken | None = None,
) -> TraceSummary:
    """Compare dumps made elsewhere, by the names of their tensors. Raises DsocrError."""
    try:
        summary = compare_dumps(Dump(a), Dump(b), page=a.name, only=only, cancel=cancel)
    except DumpError as error:
        raise TraceError(str(error)) from error
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
    """The summary of two dumps. Raises Cancelled when `cancel` is set."""
    found: list[Measured] = []
    for one in compare(a, b, device, progress):
        if cancel is not None and cancel.is_set():
            raise Cancelled
        name = one.row.name
        if not only or any(name == part or name.startswith(f"{part}.") for part in only):
            found.append(one)
    first = next((one.row for one in found if one.row.differs), None)
    causes = causes_of(found, a.about, b.about)
    only_a, only_b = unpaired(a, b)
    steps = max(0, min(a.calls, b.calls) - 1)
    return TraceSummary(
        page=page or str(a.about.get("page", "")),
        a=ways[0] if ways else str(a.about.get("backend", "a")),
        b=ways[1] if ways else str(b.about.get("backend", "b")),
        steps=steps,
        tensors=tuple(one.row for one in found),
        first=first,
        causes=causes,
        sentence=sentence_of(first, causes, len(found), steps),
        routers=tuple(one.changed for one in found if one.changed is not None),
        only_a=only_a,
        only_b=only_b,
    )


def attention_for(settings: Settings, plan: TracePlan) -> Attention:
    """The attention that was chosen; where none was, one that the published decoder has, too."""
    return "eager" if settings.attention == "auto" and "vendor" in (plan.a, plan.b) else settings.attention


# --- sides ----------------------------------------------------------------------------------------


class _Sides:
    """The engine and the worker of one trace, made when they are first needed."""

    def __init__(self, settings: Settings, plan: TracePlan, vendor: PublishedBackend | None) -> None:
        self._settings, self._borrowed = settings, vendor is not None
        self._ways: dict[Side, Way] = {"a": plan.a, "b": plan.b}
        self._published = vendor or published_backend(self._of_side("a" if plan.a == "vendor" else "b"))
        self._engines: dict[Side, Engine] = {}

    def trace(self, side: Side, task: Task) -> tuple[int, ...]:
        way = self._ways[side]
        if way == "vendor":
            return trace_vendor(self._published.vendor, task)
        if way == "fast":
            return _trace_fast(self.engine(side), task)
        engine = self.engine(side)
        return trace_engine(oracle_engine(engine) if way == "float32" else engine, task, way)

    def engine(self, side: Side) -> Engine:
        """An eager engine under the side's own settings, on weights that this process shares."""
        if side not in self._engines:
            self._engines[side] = _opened_engine(self._of_side(side))
        return self._engines[side]

    def _of_side(self, side: Side) -> Settings:
        """Give the side's own settings where their backend of that side is the one that is traced."""
        reads = self._settings.spec(side).kind == self._ways[side]
        return self._settings.of_side(side) if reads else self._settings

    def check(self, plan: TracePlan) -> None:
        """Names that are no taps, before anything is computed. Raises TraceError."""
        taps = taps_of(self.engine("a").checkpoint.config)
        known = {part for tap in taps for part in _beginnings(tap.name)}
        for name in plan.only:
            if name not in known:
                raise TraceError(f"--only {name}: no such block; give one like sam or clip.block0")

    def close(self) -> None:
        if not self._borrowed:
            self._published.close()


def _opened_engine(settings: Settings) -> Engine:
    device = resolve_device(settings.device)
    checkpoint = shared_checkpoint(settings.checkpoint, device, resolve_dtype(settings.dtype, device))
    rotary = torch.float32 if settings.rotary == "float32" else None
    return EagerEngine(checkpoint, EngineOptions(settings.own_attention, rotary, settings.max_pixels))


def _trace_fast(engine: Engine, task: Task) -> tuple[int, ...]:
    require_fast_engine(str(engine.checkpoint.model.device))
    # It needs triton, which was just asked for.
    from dsocr_core.trace.fast import trace_fast

    return trace_fast(engine, task)


@contextmanager
def _sides(settings: Settings, plan: TracePlan, vendor: PublishedBackend | None) -> Iterator[_Sides]:
    sides = _Sides(settings, plan, vendor)
    try:
        yield sides
    finally:
        sides.close()


def _task(
    plan: TracePlan, request: OcrRequest, directory: Path, tokens: tuple[int, ...],
    side: str, progress: Progress, cancel: CancelToken | None,
) -> Task:  # fmt: skip
    steps = plan.calls_needed
    return Task(
        request, steps, directory, tokens, plan.only,
        lambda call: progress(side, call, steps + 1), cancel,
        about={"page": request.name, "preset": request.required.preset, "prompt": request.required.prompt},
    )  # fmt: skip


def _beginnings(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _opened(directory: Path) -> Dump:
    try:
        return Dump(directory)
    except DumpError as error:
        raise TraceError(str(error)) from error
