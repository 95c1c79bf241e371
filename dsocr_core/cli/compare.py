"""`compare`: pages through both backends, or runs that are recorded already."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from dsocr_core.backend_specs.parsing import BackendChoice
from dsocr_core.cli import compare_outputs
from dsocr_core.cli.compare_runs import compare_runs, names_runs
from dsocr_core.cli.options import AnyNumber
from dsocr_core.cli.over_cluster import ClusterOptions
from dsocr_core.cli.read import read
from dsocr_core.records import SIDES
from dsocr_core.run.plan import RunPlan, new_run_directory
from dsocr_core.settings import Settings, SettingsError, history_location, settings_against

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ClusterOptions):
    """Pages to read with two backends, or what they have left.

    Args:
        images: images, folders or PDF files; or one or two recorded runs
        a: what reads the pages as A (default: the engine); its own settings follow as --a.KEY VALUE
        b: what reads them as B (default: the vendor); several are each compared with A; --b.KEY VALUE follow
        spans: how many spans of each backend the table shows
        backend_a: of runs: the backend of A_RUN
        backend_b: of runs: the backend of B_RUN
        html: of runs: write the report
        junit: of runs: write JUnit XML
        truth: of runs: true answers as the samples' ground_truth.json or as OmniDocBench writes them
    """

    a: BackendChoice | None = None
    b: tuple[BackendChoice, ...] = ()
    spans: AnyNumber = 3
    backend_a: str | None = None
    backend_b: str | None = None
    html: str | None = None
    junit: str | None = None
    truth: str | None = None


def compare(chosen: CompareOptions, settings: Settings, *, console: Console, typed: str) -> int:
    """Read pages with two backends and report their parity: compare IMAGE ... Or compare what is recorded,
    without a model: compare RUN (its two backends), compare A_RUN B_RUN (ids, or directories of runs) or
    compare A_OUT B_OUT (outputs of run --cluster).
    """
    settings = replace(settings, a=chosen.a, b=next(iter(chosen.b), None))
    if compare_outputs.names_outputs(chosen.images):
        return compare_outputs.compare_recorded(settings, chosen, console)
    if chosen.cluster is not None:
        if len(chosen.b) > 1:
            raise SettingsError("--cluster compares one A with one B: give --b once")
        return compare_outputs.read_and_compare(settings, chosen, console, typed)
    if names_runs(chosen):
        return compare_runs(chosen, history_location(settings), console)
    plan = RunPlan(
        images=tuple(map(Path, chosen.images)),
        directory=Path(chosen.out or new_run_directory("compare")),
        sides=SIDES,
        pages=chosen.pages,
        recursive=chosen.recursive,
        spans=chosen.spans,
        command=typed,
    )
    all_settings = [settings.for_comparison()]
    if len(chosen.b) > 1:
        all_settings = settings_against(settings, chosen.b)
    elif all_settings[0].attention_note:
        log.warning("%s", all_settings[0].attention_note)
    return read(all_settings, plan, chosen, console, f"it is in {plan.directory}")
