"""`run`: pages through one backend, by default our engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli import over_cluster
from dsocr_core.cli.options import NVTX_ONLY, add_page_options, add_subcommand, settings_of
from dsocr_core.cli.read import read
from dsocr_core.cli.sides import add_side, choice_of
from dsocr_core.errors import DsocrError
from dsocr_core.run.plan import RunPlan, new_run_directory
from dsocr_core.settings import SettingsError


def add(commands: Any) -> None:
    parser = add_subcommand(
        commands, "run", "Read pages with our engine, or another backend; write artifacts and timings."
    )
    add_page_options(parser, "images, folders or PDF files; for a cluster also URLs and manifests")
    resume = "go on with that run directory: skip what is done there"
    parser.add_argument("--resume", type=str, default=None, metavar="DIR", help=resume)
    parser.add_argument("--nvtx-only", action="store_true", help=NVTX_ONLY)
    add_side(parser, "backend", "what reads the pages (default: the engine)")
    batch = "pages that the fast engine reads together (default: all, up to 256); 1 is one by one"
    parser.add_argument("--batch", type=int, default=None, metavar="N", help=batch)
    over_cluster.add_cluster_options(parser)
    artifacts = "with --cluster: an archive a shard with result.mmd, boxes and pictures of each page"
    parser.add_argument("--artifacts", action="store_true", help=artifacts)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen, a=choice_of(chosen.backend))
    over_cluster.check(chosen)
    if chosen.resume and chosen.out:
        raise DsocrError("--resume names the run directory to go on with: leave --out out")
    plan = RunPlan(
        images=tuple(map(Path, chosen.images)),
        directory=Path(chosen.resume or chosen.out or new_run_directory("run")),
        pages=chosen.pages,
        recursive=chosen.recursive,
        resume=chosen.resume is not None,
        batch=chosen.batch,
        command=typed,
    )
    kind = settings.spec("a").kind
    if plan.batch is not None and plan.batch > 1 and kind != "fast":
        what = f"engine {kind}" if kind == "eager" else f"backend {kind}"
        raise SettingsError(f"{what} reads pages one by one: give --engine fast")
    if chosen.cluster is not None:
        return over_cluster.run(settings, chosen, console, typed)
    goes_on = f"go on with --resume {plan.directory}"
    return read([settings], plan, chosen, console, goes_on, measures=not chosen.nvtx_only)
