"""`bench`: what a page costs, engine by engine; `profile`: the kernels of a stage under Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from dsocr_core.base.console import cancelled_by_interrupt, print_json
from dsocr_core.cli.frames import print_answer
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location


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
    json: bool = False,
    no_count: bool = False,
    console: Console,
    typed: str,
) -> None:
    """Measure what a page costs, engine by engine. The last line is one JSON document.

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
    """
    if save and nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be recorded: leave --save out")
    from dsocr_core.measure.bench import BenchPlan, record_bench
    from dsocr_core.measure.bench import bench as measured_bench
    from dsocr_core.measure.synthetic_page import parse_size

    plan = BenchPlan(
        settings, engine, vendor_checkpoint, parse_size(size), tokens, batch, repeat, nvtx_only, pages,
        images, profile, count=save and not no_count,
    )  # fmt: skip
    machine = MachineWatch()
    if save:
        machine.look()
    with cancelled_by_interrupt() as cancel:
        measured = measured_bench(plan, cancel)
    document = measured.document()
    if not json:
        measured.print(console)
    if save:
        document["saved"] = record_bench(plan, measured, typed, history_location(settings), machine.facts())
    print_json(document)


def profile(
    settings: Settings,
    stage: str,
    *,
    tokens: int = 3,
    skip: int = 0,
    count: int = 100,
    ncu: str = "ncu",
    json: bool = False,
    console: Console,
) -> None:
    """Profile the kernels of a stage with Nsight Compute, into the history.

    Args:
        stage: whose kernels, like decode
        tokens: new tokens of the page; 2 are one decode step
        skip: launches of the stage to leave out first
        count: launches to profile at most
        ncu: Nsight Compute's command line
    """
    if stage not in all_stages():
        raise SettingsError(f"stage is '{stage[:40]}': give one of {', '.join(all_stages())}")
    from dsocr_core.measure.profile import Profile, profile_stage

    plan = Profile(Stage(stage), skip, count, tokens, ncu)
    run_id, launched = profile_stage(plan, settings, history_location(settings))
    document = {"run": run_id, "stage": stage, "engine": settings.engine, "launches": launched}
    print_answer(console, json, document, f"{launched} launches of {stage} recorded as run {run_id}")
