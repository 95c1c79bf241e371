"""`bench`: what a page costs, engine by engine; `profile`: kernels of a stage under Nsight Compute; `gate`:
this code beside what it was before, with exit codes for CI.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import json_line
from dsocr_core.cli.answers import Answer, Shown, cancelled_by_interrupt, written
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
    typed: str,
) -> Answer:
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
        save: record each engine as a run of the history, with the FLOPs of its pages
    """
    if save and nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be recorded: leave --save out")
    from dsocr_core.measure.bench import BenchPlan, record_bench
    from dsocr_core.measure.bench import bench as measured_bench
    from dsocr_core.measure.synthetic_page import parse_size

    plan = BenchPlan(
        settings, engine, vendor_checkpoint, parse_size(size), tokens, batch, repeat, nvtx_only, pages,
        images, profile, count=save,
    )  # fmt: skip
    machine = MachineWatch(gpu=save)
    with cancelled_by_interrupt() as cancel:
        measured = measured_bench(plan, cancel)
    document = measured.document()
    if save:
        document["saved"] = record_bench(plan, measured, typed, history_location(settings), machine.facts())
    return Answer(document, (measured.print, lambda _: print(json_line(document))))


def profile(settings: Settings, stage: str, *, tokens: int = 3, skip: int = 0, count: int = 100) -> Answer:
    """Profile the kernels of a stage with Nsight Compute, into the history.

    Args:
        stage: whose kernels, like decode
        tokens: new tokens of the page; 2 are one decode step
        skip: launches of the stage to leave out first
        count: launches to profile at most
    """
    if stage not in [*Stage]:
        raise SettingsError(f"stage is '{stage[:40]}': give one of {', '.join(Stage)}")
    from dsocr_core.measure.profile import Profile, profile_stage

    plan = Profile(Stage(stage), skip, count, tokens)
    run_id, launched = profile_stage(plan, settings, history_location(settings))
    document = {"run": run_id, "stage": stage, "engine": settings.engine, "launches": launched}
    return Answer(document, (f"{launched} launches of {stage} recorded as run {run_id}",))


def gate(
    settings: Settings,
    images: tuple[str, ...] = (),
    *,
    baseline: str | None = None,
    commit: str | None = None,
    fail_above: str = "3%",
    on: str = "",
    repeats: int = 10,
    contended: bool = False,
    markdown: str | None = None,
    size: str = "1280x1280",
    tokens: int = 100,
    batch: int = 1,
    pages: int | None = None,
    passes: int = 3,
) -> Answer:
    """Measure this code beside a baseline, in processes by turns, and tell whether it is slower. Exit
    code 0: within or faster, 3: slower, 4: inconclusive, 1: pages differ, 2: bad usage.

    Args:
        images: pages that both read, too
        baseline: a commit (default: HEAD; its parent where nothing changed)
        commit: the commit that is measured (default: the working tree)
        fail_above: change beyond which a metric is slower, or faster
        on: metrics like tokens/s,prefill,sam (default: both rates, prefill and the stages that take a while)
        repeats: processes a side at most
        contended: count processes beside other programs too
        markdown: write Markdown, for a pull request
        size: of the page in pixels
        tokens: new tokens; the end token is ignored
        batch: pages that the fast engine reads together
        pages: pages of one pass (default: 5, or --batch)
        passes: measured passes of a process
    """
    from dsocr_core.measure import gate_report
    from dsocr_core.measure.gate import Plan, hold
    from dsocr_core.measure.processes import Work
    from dsocr_core.measure.synthetic_page import parse_size

    if repeats < 2:
        raise SettingsError(f"--repeats is {repeats}: give 2 or more")
    percent = re.fullmatch(r"(\d\d?(\.\d+)?)%?", fail_above.strip())
    if percent is None or not float(percent[1]):
        raise SettingsError(f"--fail-above is '{fail_above[:20]}': give a percentage like 3%")
    metrics = tuple(filter(None, (name.strip() for name in on.split(","))))
    sides, pages = "x".join(map(str, parse_size(size))), pages or max(Work.pages, batch)
    work = Work(settings, settings.engine, sides, tokens, batch, pages, passes)
    with ExitStack() as stack:
        cancel = stack.enter_context(cancelled_by_interrupt())
        location = history_location(settings) if settings.history else stack.enter_context(Temporary("gate"))
        shares = float(percent[1]) / 100, contended
        gated = hold(Plan(work, location, baseline, commit, repeats, metrics, *shares, images), cancel)
    lines = [written(markdown, gate_report.markdown(gated))] if markdown else []
    show: list[Shown] = [partial(gate_report.print_gate, gated), *lines]
    return Answer(gate_report.document(gated), show, gate_report.exit_code(gated))
