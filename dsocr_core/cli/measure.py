"""`measure NAME`: every measurement but `bench`; the modules of `measure/` say what each does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from dsocr_core.cli.options import (
    add_json,
    add_settings,
    add_subcommand,
    require_above_zero,
    require_positive,
    settings_of,
)
from dsocr_core.console import OK, cancelled_by_interrupt, print_json
from dsocr_core.settings import Settings, SettingsError, history_location
from dsocr_core.stages import Stage

COLUMNS = 110
_ENGINE = ("engine",)
"""The setting that `fast-parity` has no use for: it compares all engines."""


@dataclass(frozen=True)
class _Measurement:
    description: str
    add: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Console], int]
    """Imports its module when it is called: torch and all."""


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "measure", "Measure parts: a step, a stage, rounding, memory.")
    below = parser.add_subcommands(dest="name", metavar="NAME")
    for name, measurement in _MEASUREMENTS.items():
        measurement.add(add_subcommand(below, name, measurement.description))


def run(chosen: Namespace, console: Console, typed: str) -> int:
    if not console.is_terminal:
        console.width = COLUMNS
    return _MEASUREMENTS[chosen.name].run(chosen[chosen.name], console)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


# --- parts of the fast engine, on a GPU ---------------------------------------------------------


def _add_config(parser: ArgumentParser) -> None:
    parser.add_argument("--config", type=str, required=True, help="config.json of the sizes to run")


def _add_decode_step(parser: ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("--tokens", type=int, default=1000, help="steps of one pass")
    parser.add_argument("--context", type=int, default=741, help="prompt tokens before the first step")
    parser.add_argument("--repeat", type=int, default=3, help="measured passes")
    fields = "also search better launches: in every field of StepLaunches, or in those named"
    parser.add_argument("--sweep", nargs="*", type=str, default=None, metavar="FIELD", help=fields)
    parser.add_argument("--sweep-seconds", type=float, default=400.0, help="bound of that search")
    plain = "without programmatic dependent launch"
    parser.add_argument("--no-dependent", action="store_true", help=plain)


def _decode_step(options: Namespace, console: Console) -> int:
    require_positive(options, "tokens", "context", "repeat")
    _require_fast_engine("decode-step")
    from dsocr_core.measure.decode_step import run

    run(
        Path(options.config),
        tokens=options.tokens,
        context=options.context,
        repeat=options.repeat,
        sweep_fields=options.sweep,
        sweep_seconds=options.sweep_seconds,
        dependent=not options.no_dependent,
    )
    return OK


def _add_batch_step(parser: ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("--streams", type=int, default=256, help="pages decoded together")
    parser.add_argument("--context", type=int, default=900, help="the shortest context")
    parser.add_argument("--tokens", type=int, default=1000, help="how much longer the longest context is")
    parser.add_argument("--sweep", action="store_true", help="also try other blocks, tiles and streams")


def _batch_step(options: Namespace, console: Console) -> int:
    require_positive(options, "streams", "context", "tokens")
    _require_fast_engine("batch-step")
    from dsocr_core.measure.batch_step import run

    run(Path(options.config), options.streams, options.context, options.tokens, options.sweep)
    return OK


def _add_prefill(parser: ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("--preset", type=str, default="gundam", help="tiny, small, base, large or gundam")
    grid = "of tiles, under gundam"
    parser.add_argument("--grid", type=int, nargs=2, default=[2, 2], metavar=("COLUMNS", "ROWS"), help=grid)
    parser.add_argument("--text-tokens", type=int, default=35, help="prompt tokens beside the image's")
    parser.add_argument("--repeat", type=int, default=10, help="measured passes")
    parser.add_argument("--sweep", action="store_true", help="also try other block sizes of each kernel")


def _prefill(options: Namespace, console: Console) -> int:
    require_positive(options, "text_tokens", "repeat")
    _require_fast_engine("prefill")
    from dsocr_core.measure.prefill import run

    columns, rows = options.grid
    run(
        Path(options.config),
        options.preset,
        (columns, rows),
        options.text_tokens,
        options.repeat,
        options.sweep,
    )
    return OK


def _require_fast_engine(name: str) -> None:
    """To be called before a module that imports kernels. Raises DsocrError."""
    from dsocr_core.measure.device import require_fast_engine_for

    require_fast_engine_for(f"measure {name}")


# --- engines against each other -----------------------------------------------------------------


def _add_fast_parity(parser: ArgumentParser) -> None:
    images = "images, folders or PDF files (default: the samples, or drawn pages under random weights)"
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=images)
    parser.add_argument("--tokens", type=int, default=400, help="new tokens of a page at most")
    parser.add_argument("--batch", type=int, default=8, help="slots of the batch")
    parser.add_argument("--size", type=str, default="1280x1280", metavar="WxH", help="of drawn pages")
    add_json(parser)
    add_settings(parser, skip=_ENGINE)


def _fast_parity(options: Namespace, console: Console) -> int:
    require_positive(options, "tokens", "batch")
    settings = settings_of(options, skip=_ENGINE)
    from dsocr_core.measure.fast_parity import run
    from dsocr_core.measure.synthetic_page import parse_size

    size = parse_size(options.size)
    with cancelled_by_interrupt() as cancel:
        return run(settings, options.images, options.tokens, options.batch, size, console, cancel)


def _add_ties(parser: ArgumentParser) -> None:
    parser.add_argument("pages", nargs="+", type=str, metavar="PAGE", help="image files")
    checkpoint = "checkpoint directory (default: the embedded one)"
    parser.add_argument("--checkpoint", type=str, default=None, metavar="DIR", help=checkpoint)
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N")
    dtypes = "number types of the weights: bfloat16, float32"
    parser.add_argument("--dtype", nargs="+", type=str, default=["bfloat16", "float32"], help=dtypes)
    parser.add_argument("--preset", type=str, default="tiny", help="tiny, small, base, large or gundam")
    parser.add_argument("--tokens", type=int, default=80, help="new tokens of a page at most")
    parser.add_argument("--repeat", type=int, default=20, help="measured passes of each way")


def _ties(options: Namespace, console: Console) -> int:
    require_positive(options, "tokens", "repeat")
    from dsocr_core.measure.ties import run

    run(
        [Path(page) for page in options.pages],
        checkpoint=options.checkpoint,
        device=options.device,
        dtypes=options.dtype,
        preset=options.preset,
        tokens=options.tokens,
        repeat=options.repeat,
    )
    return OK


# --- a page on the host --------------------------------------------------------------------------


def _add_host_path(parser: ArgumentParser) -> None:
    parser.add_argument("--size", type=str, default="1280x1280", metavar="WxH", help="of the drawn page")
    parser.add_argument("--preset", type=str, default="gundam", help="tiny, small, base, large or gundam")
    parser.add_argument("--repeat", type=int, default=20, help="measured passes of each way")
    add_json(parser)


def _host_path(options: Namespace, console: Console) -> int:
    require_positive(options, "repeat")
    from dsocr_core.measure.host_path import run
    from dsocr_core.measure.synthetic_page import parse_size

    return run(parse_size(options.size), options.preset, options.repeat, console, options.json)


def _add_timeline(parser: ArgumentParser) -> None:
    page = "an image to read (default: a drawn page; its end token is ignored)"
    parser.add_argument("page", nargs="?", type=str, default=None, metavar="PAGE", help=page)
    parser.add_argument("--size", type=str, default="1280x1280", metavar="WxH", help="of the drawn page")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens of the page at most")
    parser.add_argument(
        "--repeat", type=int, default=5, help="passes without the profiler, for the page's time"
    )
    parser.add_argument("--least-ms", type=float, default=1.0, metavar="MS", help="shortest gap to list")
    trace = "keep the profile as a Chrome trace, for Perfetto"
    parser.add_argument("--trace", type=str, default=None, metavar="FILE", help=trace)
    add_json(parser)
    add_settings(parser)


def _timeline(options: Namespace, console: Console) -> int:
    require_positive(options, "tokens", "repeat")
    require_above_zero(options, "least_ms")
    settings = settings_of(options)
    from dsocr_core.measure.synthetic_page import parse_size
    from dsocr_core.measure.timeline import measure, run

    size = parse_size(options.size)
    with cancelled_by_interrupt() as cancel:
        timeline = measure(
            settings, _path(options.page), size, options.tokens, options.repeat, cancel, _path(options.trace)
        )
    return run(timeline, options.least_ms, console, options.json)


# --- kernels under a profiler ------------------------------------------------------------------


def _add_kernels(parser: ArgumentParser) -> None:
    stages = ", ".join(stage.value for stage in Stage)
    parser.add_argument("--stage", type=str, required=True, help=f"whose kernels: {stages}")
    parser.add_argument("--tokens", type=int, default=3, help="new tokens of the page; 2 are one decode step")
    parser.add_argument("--skip", type=int, default=0, help="launches of the stage to leave out first")
    parser.add_argument("--count", type=int, default=100, help="launches to profile at most")
    brief = "fewer figures and rules, and fewer replays of each launch: for a thousand launches"
    parser.add_argument("--brief", action="store_true", help=brief)
    parser.add_argument(
        "--ncu", type=str, default="ncu", metavar="FILE", help="Nsight Compute's command line"
    )
    add_json(parser)
    add_settings(parser)


def _kernels(options: Namespace, console: Console) -> int:
    require_positive(options, "tokens", "count")
    if options.skip < 0:
        raise SettingsError(f"--skip is {options.skip}: give 0 or more")
    try:
        stage = Stage(options.stage)
    except ValueError:
        stages = ", ".join(stage.value for stage in Stage)
        raise SettingsError(f"--stage is '{options.stage[:40]}': give one of {stages}") from None
    settings = settings_of(options)
    from dsocr_core.measure.kernels import profile_stage
    from dsocr_core.measure.ncu_command import Profile

    profile = Profile(
        stage, settings.engine, options.skip, options.count, options.tokens, options.ncu, options.brief
    )
    run_id, count = profile_stage(profile, settings, history_location(settings))
    if options.json:
        print_json({"run": run_id, "stage": stage.value, "engine": settings.engine, "launches": count})
    else:
        console.print(f"{count} launches of {stage.value} recorded as run {run_id}", markup=False)
    return OK


# --- whole runs ---------------------------------------------------------------------------------


def _add_soak(parser: ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=2000, help="how many pages to read")
    parser.add_argument("--tokens", type=int, default=200, help="new tokens of a page at most")
    batch = "pages that the fast engine reads together (default: all, up to 256)"
    parser.add_argument("--batch", type=int, default=None, metavar="N", help=batch)
    add_json(parser)
    add_settings(parser)


def _soak(options: Namespace, console: Console) -> int:
    require_positive(options, "pages", "tokens", "batch")
    settings = settings_of(options)
    from dsocr_core.measure.soak import run

    with cancelled_by_interrupt() as cancel:
        return run(settings, options.pages, options.tokens, options.batch, console, cancel)


def _add_floor(parser: ArgumentParser) -> None:
    commits = "commits with a recorded bench of the fast engine, the oldest first"
    parser.add_argument("commits", nargs="+", metavar="COMMIT", help=commits)
    parser.add_argument("--config", type=str, required=True, help="config.json of the recorded model")
    parser.add_argument("--preset", type=str, default="gundam", help="of the recorded benches")
    parser.add_argument("--svg", type=str, default=None, metavar="FILE", help="write the picture there")
    where = "where runs are: a path, relative to the project, or a URL (default: data/runs/history)"
    parser.add_argument("--history", type=str, default=None, metavar="WHERE", help=where)
    add_json(parser)


def _floor(options: Namespace, console: Console) -> int:
    from dsocr_core.measure.floor import run

    settings = Settings(history=options.history) if options.history else Settings()
    return run(
        options.commits, Path(options.config), options.preset, history_location(settings), _path(options.svg),
        Console(stderr=True), options.json,
    )  # fmt: skip


_MEASUREMENTS = {
    "decode-step": _Measurement(
        "Time the fast engine's decode step on random weights, on a GPU.", _add_decode_step, _decode_step
    ),
    "batch-step": _Measurement(
        "Time the decode step of a batch on random weights, on a GPU.", _add_batch_step, _batch_step
    ),
    "prefill": _Measurement(
        "Time and check vision and prefill of both engines on random weights, on a GPU.",
        _add_prefill,
        _prefill,
    ),
    "ties": _Measurement("Measure how far rounding moves logits, and what recording them costs.",
                         _add_ties, _ties),
    "host-path": _Measurement("Time what the host does of a page: opening, resizing, hashes.",
                              _add_host_path, _host_path),
    "timeline": _Measurement(
        "Show one page as a timeline: stages, the device's work, and each gap by its name.",
        _add_timeline,
        _timeline,
    ),
    "fast-parity": _Measurement(
        "Compare the fast engine with the eager one, fed its tokens and free. Ends with one line of JSON.",
        _add_fast_parity,
        _fast_parity,
    ),
    "kernels": _Measurement(
        "Profile the kernels of a stage with Nsight Compute, into the history.", _add_kernels, _kernels
    ),
    "soak": _Measurement(
        "Read many pages and watch whether memory stays flat. Ends with one line of JSON.", _add_soak, _soak
    ),
    "floor": _Measurement(
        "Compare recorded benches with the least time of each stage: CSV, and a picture.", _add_floor, _floor
    ),
}  # fmt: skip
