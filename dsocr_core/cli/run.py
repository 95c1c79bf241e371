"""`run`: pages through one backend, by default our engine; and what `compare` reads pages with."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr_core.base.console import SafeConsole
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.specs import BackendChoice
from dsocr_core.cli import ahead, over_cluster
from dsocr_core.cli.answers import Answer, Compared, cancelled_by_interrupt
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.read.progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Pages, and where what is read of them goes.

    Args:
        pages: pages of PDF files, like 1-3,7
        pages_together: pages of a document in one prompt, without a number all; given images are one document
        recursive: read folders below given ones too; pages are named by their path from there
        out: run directory to write (default: data/runs/TIME-COMMAND)
        save: record it as a run of the history, with the FLOPs of its pages
    """

    images: tuple[str, ...] = field(default=(), kw_only=False)
    pages: str | None = None
    pages_together: int | None = None
    recursive: bool = False
    out: str | None = None
    save: bool = False

    def plan(self, command: str, typed: str, resume: str | None = None, **more: Any) -> RunPlan:
        """Plan of reading these pages into `out`, else a new directory of that command."""
        return RunPlan(
            images=tuple(map(Path, self.images)), pages=self.pages, recursive=self.recursive, command=typed,
            directory=Path(resume or self.out or new_run_directory(command)), resume=resume is not None,
            together=self.pages_together, **more,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOptions(PageOptions):
    """Pages to read with one backend.

    Args:
        images: images, folders or PDF files; for a cluster also URLs and manifests
        backend: what reads the pages (default: the engine); its own settings follow as --backend.KEY VALUE
        batch: pages that the fast engine reads together (default: all, up to 512); 1 is one by one
        resume: go on with that run directory: skip what is done there
        cluster: local, or the address of a Dask scheduler such as tcp://HOST:8786; see docs/scale.md
        status: read nothing: print how far a run over a cluster is, from its output, a directory or a URL
    """

    backend: BackendChoice | None = None
    batch: int | None = None
    resume: str | None = None
    cluster: str | None = None
    status: str | None = None
    nvtx_only: bool = False

    def __post_init__(self) -> None:
        """Raises SettingsError for options that do not go together."""
        if bool(self.images) == bool(self.status):
            raise SettingsError("give pages to read, or --status OUT alone")
        if self.resume and self.out:
            raise SettingsError("--resume names the run directory to go on with: leave --out out")


def of_this_machine(settings: Settings) -> Settings:
    """Put the preset that `auto` means here into the settings. An unusual one is printed."""
    from analytic_model.on_cpu import with_cpu_preset

    found, why = with_cpu_preset(settings)
    if why:
        log.warning("%s", why)
    return found


def run(
    chosen: RunOptions,
    cluster: over_cluster.ClusterOptions,
    settings: Settings,
    *,
    typed: str,
) -> Answer:
    """Read pages with our engine, or another backend; write artifacts and timings."""
    if chosen.status is not None:
        return over_cluster.status(chosen.status)
    settings = replace(settings, a=chosen.backend)
    plan = chosen.plan("run", typed, chosen.resume, batch=chosen.batch)
    kind = settings.spec("a").kind
    if plan.batch is not None and plan.batch > 1 and kind != "fast":
        raise SettingsError(f"{kind} reads pages one by one: give --engine fast")
    if chosen.cluster is not None:
        return over_cluster.run(settings, chosen, cluster)
    if chosen.pages_together is None:  # several pages in a prompt have a preset of their own
        settings = of_this_machine(settings)
    record_in = settings.history if chosen.save else None
    goes_on, timed = f"go on with --resume {plan.directory}", not chosen.nvtx_only
    return read([settings], plan, record_in, goes_on, timed).answer()


def read(
    all_settings: Sequence[Settings],
    plan: RunPlan,
    record_in: str | None,
    goes_on: str,
    measures: bool = True,
) -> Compared:
    """Read the pages of a plan.

    Several settings are one A with several B, as `settings_against` gives them; each pair is a run of its own
    in the history at `record_in`, where one is named, with the FLOPs of its pages. `goes_on` is said of the
    run directory when Ctrl-C ended it. Raises DsocrError, Cancelled.
    """
    if record_in == "":
        raise SettingsError("--save has no history to write to: give --history a path")
    from dsocr_core.read.progress import Progress, bar

    with bar(SafeConsole(stderr=True)) as say:
        # Heavy imports come after the command line is known to be good, and the bar.
        if not all(map(os.path.lexists, plan.images)):
            plan.look_up(all_settings[0])  # says so
        say("importing torch", 0.0)
        ahead.begin(all_settings)
        return _read(all_settings, plan, record_in, goes_on, measures, Progress(say))


def _read(
    all_settings: Sequence[Settings],
    plan: RunPlan,
    record_in: str | None,
    goes_on: str,
    measures: bool,
    progress: Progress,
) -> Compared:
    from analytic_model.counted import run_rows
    from dsocr_core.backends.backend import Opening
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.read.run import read_run
    from dsocr_core.read.session import Session
    from dsocr_core.runs.record import Recording

    opening = Opening(marks=None if measures else Marks.RANGES, stores=False)
    save, one = record_in is not None, len(all_settings) == 1
    recordings = [
        Recording(
            replace(each, history=record_in or each.history), plan.command, save=save,
            out=plan.directory if one else None, count=run_rows if save else None,
        )
        for each in all_settings
        if one or save
    ]  # fmt: skip
    try:
        with ExitStack() as stack:
            sessions = [stack.enter_context(closing(Session(each, opening))) for each in all_settings]
            cancel = stack.enter_context(cancelled_by_interrupt())
            report = read_run(sessions, plan, progress, recordings, cancel)
    except Cancelled:
        names = ", ".join(each.id for each in recordings if each.id)
        finished = f"; what was finished is recorded as run {names}" if names else ""
        left = f"; {goes_on}" if plan.directory.is_dir() else ""
        raise Cancelled(f"cancelled{finished}{left}") from None
    return Compared.of(report, [each.id for each in recordings], [f"written to {plan.directory}"])
