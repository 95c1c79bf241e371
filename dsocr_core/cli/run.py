"""`run`: pages through one backend, by default our engine."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from dsocr_core.base.specs import BackendChoice
from dsocr_core.cli import over_cluster
from dsocr_core.cli.answers import Answer
from dsocr_core.cli.read import PageOptions, read
from dsocr_core.settings import Settings, SettingsError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions(PageOptions):
    """Pages to read with one backend.

    Args:
        images: images, folders or PDF files; for a cluster also URLs and manifests
        backend: what reads the pages (default: the engine); its own settings follow as --backend.KEY VALUE
        batch: pages that the fast engine reads together (default: all, up to 256); 1 is one by one
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
        if self.resume and self.cluster is not None:
            raise SettingsError(
                "--resume is for one process: with --cluster the same --out goes on by itself"
            )
        if self.resume and self.out:
            raise SettingsError("--resume names the run directory to go on with: leave --out out")


def of_this_machine(settings: Settings) -> Settings:
    """The settings with the preset that `auto` means here; says it where that is another than usual."""
    from analytic_model.on_cpu import of_cpu

    found, why = of_cpu(settings)
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
        what = f"engine {kind}" if kind == "eager" else f"backend {kind}"
        raise SettingsError(f"{what} reads pages one by one: give --engine fast")
    if chosen.cluster is not None:
        return over_cluster.run(settings, chosen, cluster)
    if chosen.pages_together is None:  # several pages in a prompt have a preset of their own
        settings = of_this_machine(settings)
    record_in = settings.history if chosen.save else None
    goes_on, timed = f"go on with --resume {plan.directory}", not chosen.nvtx_only
    return read([settings], plan, record_in, goes_on, timed).answer()
