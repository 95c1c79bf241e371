"""One warm page as a timeline: the host's stages, when the device works, and every longer gap by its name.

    dsocr measure timeline --engine fast --checkpoint random:CONFIG --preset gundam --tokens 1000

The host's stages and the device's work are on torch's profiler's one clock. A gap is a time in which nothing
runs on the device; it is named by what the host does meanwhile. A stage is the host's: on a GPU it ends when
its work is queued. The profiler costs time itself, so the page's time without it stands beside. Without a GPU
there are the host's stages alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend, engine_backend
from dsocr_core.base.console import OK, print_json
from dsocr_core.base.temporary import Temporary
from dsocr_core.measure.synthetic_page import draw_page, parse_size
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.settings import Settings

WARM_UP = 2
PAGE, HOST = "page", "host "
"""The range of the whole page, and what the names of the stages' ranges begin with."""
BETWEEN = "between stages"
OUTERMOST = (Stage.PREPROCESS, Stage.TOKENIZER, Stage.PREFILL, Stage.DECODE, Stage.POSTPROCESS)


@dataclass(frozen=True)
class Span:
    """Milliseconds since the page began."""

    name: str
    start: float
    end: float

    @property
    def ms(self) -> float:
        return self.end - self.start

    def within(self, other: Span) -> float:
        """Measure how much of it lies in the other one."""
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))


@dataclass(frozen=True)
class Gap:
    """Nothing runs on the device; `host` has the milliseconds of what the host does meanwhile."""

    start: float
    ms: float
    host: dict[str, float]


@dataclass(frozen=True)
class Timeline:
    """`busy` are the times in which the device works, merged; None without a GPU."""

    page: Span
    stages: tuple[Span, ...]
    busy: tuple[Span, ...] | None
    alone_ms: float
    """The median of the page without the profiler."""

    def gaps(self, least_ms: float) -> list[Gap]:
        """The device's, of that length at least, in order."""
        found, at = [], self.page.start
        for span in (*(self.busy or ()), Span("", self.page.end, self.page.end)):
            gap = Span("", at, min(span.start, self.page.end))
            if gap.ms >= least_ms:
                found.append(Gap(gap.start, gap.ms, self._host(gap)))
            at = max(at, span.end)
        return found

    def busy_ms(self, stage: Span) -> float:
        return sum(span.within(stage) for span in self.busy or ())

    def _host(self, gap: Span) -> dict[str, float]:
        """Say what the host does in it; nested stages count for the innermost alone."""
        parts: dict[str, float] = {}
        for stage in self.stages:
            nested = (inner for inner in self.stages if inner != stage and inner.within(stage) == inner.ms)
            own = stage.within(gap) - sum(inner.within(gap) for inner in nested)
            if own > 0:
                parts[stage.name] = parts.get(stage.name, 0.0) + own
        if (rest := gap.ms - sum(parts.values())) > 1e-3:
            parts[BETWEEN] = rest
        return dict(sorted(parts.items(), key=lambda part: -part[1]))


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans that touch or overlap as one, in order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if found and span.start <= found[-1].end:
            found[-1] = replace(found[-1], end=max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def timeline_of(events: Iterable[Any], alone_ms: float, device: bool) -> Timeline:
    """The timeline of a profile's events: kineto's, with names, times in ns and the device they ran on."""
    cpu = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]
    host, work = [], []
    for event in events:
        start, end = event.start_ns() / 1e6, event.end_ns() / 1e6
        if event.device_type() != cpu:
            # Ranges of the host are shown on the device as well: they are no work.
            if event.name() != PAGE and not event.name().startswith(HOST):
                work.append(Span("", start, end))
        elif event.name() == PAGE or event.name().startswith(HOST):
            host.append(Span(event.name().removeprefix(HOST), start, end))
    page = next(span for span in host if span.name == PAGE)
    moved = [Span(span.name, span.start - page.start, span.end - page.start) for span in host]
    stages = sorted((span for span in moved if span.name != PAGE), key=lambda span: span.start)
    busy = merged(Span("", span.start - page.start, span.end - page.start) for span in work)
    return Timeline(Span(PAGE, 0.0, page.ms), tuple(stages), busy if device else None, alone_ms)


class _Ranges:
    """Each stage as a range of the profiler."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def stage_started(self, stage: Stage) -> None:
        self._open.append(torch.profiler.record_function(HOST + stage.value))
        self._open[-1].__enter__()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        self._open.pop().__exit__(None, None, None)

    def text(self, delta: str) -> None:
        pass


def measure(
    settings: Settings, image: Path | None, size: tuple[int, int], tokens: int, repeat: int,
    cancel: CancelToken | None = None, trace: Path | None = None,
) -> Timeline:  # fmt: skip
    """Read the page until it is warm, then `repeat` times for its time, then once under the profiler.

    Without an image a page is drawn. Raises DsocrError, and Cancelled when `cancel` is set.
    """
    settings = replace(settings, infer=replace(settings.infer, max_new_tokens=tokens))
    with Temporary("timeline") as folder:
        page = image or draw_page(Path(folder) / "page.png", size, 0)
        with closing(engine_backend(settings, Opening(ignore_eos=image is None))) as backend:
            return _measured(backend, settings.request(page), repeat, cancel, trace)


def _measured(
    backend: EngineBackend, request: OcrRequest, repeat: int, cancel: CancelToken | None, trace: Path | None
) -> Timeline:
    times = []
    for number in range(WARM_UP + repeat):
        started = time.perf_counter()
        backend.read(request, None, cancel)
        if number >= WARM_UP:
            times.append(1e3 * (time.perf_counter() - started))
    cuda = backend.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile, torch.profiler.record_function(PAGE):
        backend.read(request, _Ranges(), cancel)
    if trace is not None:
        profile.export_chrome_trace(str(trace))
    kineto = profile.profiler.kineto_results if profile.profiler is not None else None
    return timeline_of(kineto.events() if kineto is not None else (), statistics.median(times), cuda)


def run(
    settings: Settings,
    page: Path | None = None,
    *,
    size: str = "1280x1280",
    tokens: int = 100,
    repeat: int = 5,
    least_ms: float = 1.0,
    trace: Path | None = None,
    json: bool = False,
    console: Console,
    cancel: CancelToken,
) -> int:
    """Show one page as a timeline: stages, the device's work, and each gap by its name.

    Args:
        page: an image to read (default: a drawn page; its end token is ignored)
        size: of the drawn page, like 1280x1280
        tokens: new tokens of the page at most
        repeat: passes without the profiler, for the page's time
        least_ms: shortest gap to list
        trace: keep the profile as a Chrome trace, for Perfetto
    """
    timeline = measure(settings, page, parse_size(size), tokens, repeat, cancel, trace)
    return show(timeline, least_ms, console, json)


def show(timeline: Timeline, least_ms: float, console: Console, as_json: bool) -> int:
    """Print it."""
    gaps = timeline.gaps(least_ms) if timeline.busy is not None else []
    if as_json:
        busy = None if timeline.busy is None else sum(span.ms for span in timeline.busy)
        print_json({
            "page_ms": timeline.page.ms, "page_ms_alone": timeline.alone_ms, "device_busy_ms": busy,
            "stages": [
                asdict(stage) | {"busy_ms": None if busy is None else timeline.busy_ms(stage)}
                for stage in timeline.stages
            ],
            "least_ms": least_ms, "gaps": [asdict(gap) for gap in gaps],
        })  # fmt: skip
        return OK
    console.print(_stages(timeline))
    if timeline.busy is None:
        console.print("No GPU: the host's stages alone.")
        return OK
    table = Table(title=f"Gaps of the device of {least_ms:g} ms and more")
    for heading in ("from, ms", "ms", "the host meanwhile"):
        table.add_column(heading, justify="left" if heading.startswith("the") else "right")
    for gap in gaps:
        doing = ", ".join(f"{name} {ms:.1f}" for name, ms in gap.host.items() if ms >= 0.05)
        table.add_row(f"{gap.start:.1f}", f"{gap.ms:.1f}", doing)
    console.print(table if gaps else f"The device has no gap of {least_ms:g} ms or more.")
    return OK


def _stages(timeline: Timeline) -> Table:
    title = f"{timeline.page.ms:.1f} ms under the profiler, {timeline.alone_ms:.1f} ms without"
    table = Table(title=title)
    for heading in ("stage, of the host", "from, ms", "to, ms", "ms", "device busy, %"):
        table.add_column(heading, justify="left" if heading.startswith("stage") else "right")
    rows: Sequence[Span] = (*timeline.stages, timeline.page)
    outer = {stage.value for stage in OUTERMOST} | {PAGE}
    for span in rows:
        share = "" if timeline.busy is None or not span.ms else f"{timeline.busy_ms(span) / span.ms:.0%}"
        name = span.name if span.name in outer else f"  {span.name}"
        table.add_row(name, f"{span.start:.1f}", f"{span.end:.1f}", f"{span.ms:.1f}", share.removesuffix("%"))
    return table
