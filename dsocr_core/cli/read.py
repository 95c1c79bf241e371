"""`run` and `compare`: pages in, a table or one JSON document out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.console import FAILED, OK, cancelled_by_interrupt, typed_command
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.history.recorder import RunRecorder
from dsocr_core.settings import Settings, SettingsError


def read_pages(
    command: str,
    settings: Settings,
    chosen: Namespace,
    console: Console,
    arguments: Sequence[str] | None,
) -> int:
    """`run` and `compare`: pages in, a table or one JSON document out."""
    # Heavy imports come after the command line is known to be good.
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.run.pages import process, run_directory
    from dsocr_core.run.pipeline import Pipeline
    from dsocr_core.run.progress import Progress

    if chosen.save and not settings.history:
        raise SettingsError("--save has nowhere to save to: give --history a path or a URL")
    typed = typed_command(arguments)
    saved = RunRecorder(settings, typed) if chosen.save else None
    batch = getattr(chosen, "batch", None)
    if batch is not None and batch < 1:
        raise SettingsError(f"batch is {batch}: give a positive integer")
    if batch is not None and batch > 1 and settings.engine != "fast":
        raise SettingsError(f"engine {settings.engine} reads pages one by one: give --engine fast")
    resume, nvtx_only = getattr(chosen, "resume", None), getattr(chosen, "nvtx_only", False)
    if resume and chosen.out:
        raise DsocrError("--resume names the run directory to go on with: leave --out out")
    directory = Path(resume or chosen.out or run_directory(command))
    try:
        with (
            closing(Pipeline(settings, marks=Marks.RANGES if nvtx_only else Marks.TIMED)) as pipeline,
            Progress(Console(stderr=True)) as progress,
            cancelled_by_interrupt() as cancel,
            saved or nullcontext(),
        ):
            report = process(
                pipeline,
                [Path(image) for image in chosen.images],
                backends=settings.backends if command == "compare" else settings.backends[:1],
                pages=chosen.pages,
                directory=directory,
                progress=progress,
                cancel=cancel,
                resume=resume is not None,
                spans=getattr(chosen, "spans", 0),
                saved=saved,
                batch=batch,
                command=typed,
            )
    except Cancelled:
        raise Cancelled(_what_is_left(command, directory, saved)) from None
    if chosen.json:
        report.write_json(sys.stdout)
    else:
        report.print(console)
        console.print(f"written to {directory}", markup=False)
        if saved is not None and saved.id:
            console.print(f"saved as run {saved.id}", markup=False)
    return FAILED if report.failed else OK


def _what_is_left(command: str, directory: Path, saved: RunRecorder | None) -> str:
    """What a cancelled run left, and how to go on."""
    words = ["cancelled"]
    if saved is not None and saved.id:
        words.append(f"what was finished is saved as run {saved.id}")
    if directory.is_dir():
        words.append(f"go on with --resume {directory}" if command == "run" else f"it is in {directory}")
    return "; ".join(words)
