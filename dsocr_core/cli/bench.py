"""`bench`: what a page costs, engine by engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from dsocr_core.base.console import OK, cancelled_by_interrupt, print_json
from dsocr_core.cli.gate import recorded_baseline, share_of
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location

if TYPE_CHECKING:
    from dsocr_core.measure.bench import BenchPlan
    from dsocr_core.measure.gate_baseline import Baseline


def bench(
    settings: Annotated[Settings, "engine"],
    *,
    engine: tuple[EngineName, ...] = ("eager",),
    vendor_checkpoint: str | None = None,
    size: str = "1280x1280",
    tokens: int = 100,
    batch: int = 1,
    pages: int | None = None,
    images: int = 1,
    repeat: int = 5,
    nvtx_only: bool = False,
    profile: Path | None = None,
    save: bool = False,
    no_count: bool = False,
    baseline: str | None = None,
    fail_above: str = "3%",
    price: float | None = None,
    json: bool = False,
    console: Console,
    typed: str,
) -> int:
    """Measure what a page costs, engine by engine. The last line is one JSON document. With --baseline the
    exit codes are those of gate.

    Args:
        engine: engines to measure
        vendor_checkpoint: measure the vendor backend on this directory too; its code must be allowed
        size: of the page in pixels, like 1280x1280
        tokens: new tokens; the end token is ignored
        batch: pages that the fast engine reads together
        pages: pages of one pass (default: --batch)
        images: images of each prompt, for a model that takes several
        repeat: measured passes, after the warm-up
        profile: write torch's trace of one more page there, for Perfetto and history import
        save: record each engine as a run of the history
        no_count: leave out the FLOPs of each shape of page, which --save counts
        baseline: a run or tag of the history to judge this and the runs like it by; records it too
        price: of this machine an hour, in any currency: 1,000 pages are priced at the median pages/s
        fail_above: change beyond which a metric is slower, or faster, than the baseline's
    """
    save = save or baseline is not None
    if save and nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be recorded: leave --save out")
    from dsocr_core.measure.bench import BenchPlan
    from dsocr_core.measure.bench import bench as measured_bench
    from dsocr_core.measure.synthetic_page import parse_size

    if save:  # a package that it lacks is named before anything is measured
        from dsocr_core.measure.bench_record import record_bench
    plan = BenchPlan(
        settings,
        engine,
        vendor_checkpoint,
        parse_size(size),
        tokens,
        batch,
        repeat,
        nvtx_only,
        pages,
        images,
        profile,
    )
    share, location = share_of(fail_above), history_location(settings)
    before = _baseline(plan, location, baseline) if baseline is not None else None
    machine = MachineWatch()
    if save:
        machine.look()
    with cancelled_by_interrupt() as cancel:
        measured = measured_bench(plan, cancel)
    document, code = measured.document(), OK
    if price is not None:
        document |= {"price_an_hour": price, "cost_of_1000_pages": measured.costs(price)}
    if not json:
        measured.print(console, price)
    if save:
        document["saved"] = record_bench(plan, measured, typed, location, machine.facts(), not no_count)
    if before is not None:
        from dsocr_core.measure.gate_baseline import beside_baseline
        from dsocr_core.measure.gate_report import document as gate_document
        from dsocr_core.measure.gate_report import exit_code, print_gate

        names = [figures.name for figures in measured.engines]
        gated = beside_baseline(location, before, document["saved"][names.index(before.engine)], share)
        document["gate"], code = gate_document(gated), exit_code(gated)
        if not json:
            print_gate(gated, console)
    print_json(document)
    return code


def _baseline(plan: BenchPlan, location: str, name: str) -> Baseline:
    """The recorded bench of that name. Raises DsocrError for one of other work."""
    from dsocr_core.measure.processes import Work

    if (found := recorded_baseline(location, name, contended=False)) is None:
        raise SettingsError(f"--baseline: '{name[:60]}' is a commit, and no run: dsocr gate measures both")
    if found.engine not in plan.engines:
        raise SettingsError(f"the baseline is of the {found.engine} engine: give --engine {found.engine}")
    width, height = plan.size
    found.check(
        Work(plan.settings, found.engine, f"{width}x{height}", plan.tokens, plan.batch, plan.pages_a_pass)
    )
    return found
