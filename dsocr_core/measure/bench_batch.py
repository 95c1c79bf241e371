"""The bench of pages read together: a pass of the fast engine's slots, and decoding with full slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.fast.batch import GroupTime
from dsocr_core.engine.source import Prefetch
from dsocr_core.measure.bench_report import EngineFigures, Spread
from dsocr_core.read.prefetch import PageFailed, PageToRead, PreparedPages, ReadyPage
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult


def read_pass(
    backend: EngineBackend,
    requests: Sequence[OcrRequest],
    slots: int,
    cancel: CancelToken | None = None,
) -> list[OcrResult]:
    """Read every page once, opening included; results in the order they end. Raises the first error."""
    outcomes: list[OcrResult | DsocrError] = []

    def prepare(number: int) -> ReadyPage:
        request = requests[number]
        try:
            return PageToRead(request.name, request, {}, backend.prepare(request))
        except DsocrError as error:
            outcomes.append(error)
            return PageFailed(request.name, str(error), request.image)

    with Prefetch(prepare, range(len(requests))) as pages:
        source = PreparedPages(pages, lambda page: None)
        backend.read_many(source, lambda _, outcome: outcomes.append(outcome), slots, cancel)
    if error := next((each for each in outcomes if isinstance(each, DsocrError)), None):
        raise error
    return [each for each in outcomes if isinstance(each, OcrResult)]


def with_batch(
    figures: EngineFigures, backend: EngineBackend, slots: int, copy_bytes_per_s: float | None
) -> EngineFigures:
    """Replace a page's decode figures by those of steps in which every slot was live.

    `tokens_per_s` is then of all streams, `ms_per_token` of a step. A stage's time is shared with other
    pages, so it gives no rate of FLOPs.
    """
    reader = backend.reader_of(slots)
    stages = {
        name: replace(stage, flops_per_s=None, matmul_share=None) for name, stage in figures.stages.items()
    }
    figures = replace(figures, stages=stages, streams=reader.slots)
    full = full_groups(reader.times, reader.slots)
    if not full:
        return figures
    step_ms = [group.milliseconds / group.steps for group in full]
    tokens = [1e3 * group.tokens / group.milliseconds for group in full]
    moved = [reader.bytes_of(group.positions) for group in full]
    rates = Spread.of([1e3 * size / ms for size, ms in zip(moved, step_ms, strict=True)])
    assert rates is not None
    return replace(
        figures,
        ms_per_token=Spread.of(step_ms),
        tokens_per_s=Spread.of(tokens),
        bytes_per_token=sum(moved) / len(moved) / reader.slots,
        bytes_per_s=rates.median,
        copy_share=rates.median / copy_bytes_per_s if copy_bytes_per_s else None,
    )


def full_groups(times: Sequence[GroupTime], slots: int) -> list[GroupTime]:
    """Groups in which every slot took every step; the fullest where there are none."""
    timed = [group for group in times if group.milliseconds and group.tokens]
    most = max((group.tokens / group.steps for group in timed), default=0.0)
    return [group for group in timed if group.tokens >= min(slots, most) * group.steps]
