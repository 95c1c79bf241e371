"""`measure NAME`: every measurement but `bench`; the modules of `measure/` say what each does.

An option goes to the parameter of that name of the module's `run`. The module is imported when it is called:
torch and all.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
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
from dsocr_core.console import OK, cancelled_by_interrupt
from dsocr_core.models.family import all_stages
from dsocr_core.settings import SettingsError

COLUMNS = 110
_PATHS = ("config", "page", "trace", "svg")
_Option = tuple[str, dict[str, Any]]


def _option(flag: str, kind: Any, default: Any, help: str, **more: Any) -> _Option:
    return flag, {"type": kind, "default": default, "help": help, **more}


def _flag(flag: str, help: str) -> _Option:
    return flag, {"action": "store_true", "help": help}


_CONFIG = _option("--config", str, None, "config.json of the sizes to run", required=True)
_SIZE = _option("--size", str, "1280x1280", "of the drawn page", metavar="WxH")
_PRESET = "tiny, small, base, large or gundam"
_STAGES = ", ".join(stage.value for stage in all_stages())


@dataclass(frozen=True)
class _Measurement:
    description: str
    options: tuple[_Option, ...]
    on_gpu: bool = False
    """Kernels of the fast engine: said before its module is imported."""
    settings: Collection[str] | None = None
    """Takes the settings without these; None takes none."""
    json: bool = True

    def add(self, parser: ArgumentParser) -> None:
        for flag, more in self.options:
            parser.add_argument(flag, **more)
        if self.json:
            add_json(parser)
        if self.settings is not None:
            add_settings(parser, skip=self.settings)

    def check(self, options: Namespace) -> None:
        """Numbers are positive. Raises SettingsError."""
        for flag, more in self.options:
            name = flag.lstrip("-").replace("-", "_")
            if more.get("type") is int and "nargs" not in more:
                if more["default"] != 0:
                    require_positive(options, name)
                elif options[name] < 0:
                    raise SettingsError(f"{flag} is {options[name]}: give 0 or more")
            elif more.get("type") is float:
                require_above_zero(options, name)


_MEASUREMENTS = {
    "decode-step": _Measurement(
        "Time the fast engine's decode step on random weights, on a GPU.",
        (
            _CONFIG,
            _option("--tokens", int, 1000, "steps of one pass"),
            _option("--context", int, 741, "prompt tokens before the first step"),
            _option("--repeat", int, 3, "measured passes"),
            _option("--sweep", str, None, "also search better launches: in every field of StepLaunches, or "
                    "in those named", nargs="*", metavar="FIELD"),
            _option("--sweep-seconds", float, 400.0, "bound of that search"),
            _flag("--no-dependent", "without programmatic dependent launch"),
        ),
        on_gpu=True, json=False,
    ),
    "batch-step": _Measurement(
        "Time the decode step of a batch on random weights, on a GPU.",
        (
            _CONFIG,
            _option("--streams", int, 256, "pages decoded together"),
            _option("--context", int, 900, "the shortest context"),
            _option("--tokens", int, 1000, "how much longer the longest context is"),
            _flag("--sweep", "also try other blocks, tiles and streams"),
        ),
        on_gpu=True, json=False,
    ),
    "prefill": _Measurement(
        "Time and check vision and prefill of both engines on random weights, on a GPU.",
        (
            _CONFIG,
            _option("--preset", str, "gundam", _PRESET),
            _option("--grid", int, [2, 2], "of tiles, under gundam", nargs=2, metavar=("COLUMNS", "ROWS")),
            _option("--text-tokens", int, 35, "prompt tokens beside the image's"),
            _option("--repeat", int, 10, "measured passes"),
            _flag("--sweep", "also try other block sizes of each kernel"),
        ),
        on_gpu=True, json=False,
    ),
    "ties": _Measurement(
        "Measure how far rounding moves logits, and what recording them costs.",
        (
            ("pages", {"nargs": "+", "type": str, "metavar": "PAGE", "help": "image files"}),
            _option("--checkpoint", str, None, "checkpoint directory (default: the embedded one)",
                    metavar="DIR"),
            _option("--device", str, "auto", "auto, cpu, cuda or cuda:N"),
            _option("--dtype", str, ["bfloat16", "float32"], "number types of the weights: bfloat16, float32",
                    nargs="+"),
            _option("--preset", str, "tiny", _PRESET),
            _option("--tokens", int, 80, "new tokens of a page at most"),
            _option("--repeat", int, 20, "measured passes of each way"),
        ),
        json=False,
    ),
    "host-path": _Measurement(
        "Time what the host does of a page: opening, resizing, hashes.",
        (
            _SIZE,
            _option("--preset", str, "gundam", _PRESET),
            _option("--repeat", int, 20, "measured passes of each way"),
        ),
    ),
    "timeline": _Measurement(
        "Show one page as a timeline: stages, the device's work, and each gap by its name.",
        (
            ("page", {"nargs": "?", "type": str, "default": None, "metavar": "PAGE",
                      "help": "an image to read (default: a drawn page; its end token is ignored)"}),
            _SIZE,
            _option("--tokens", int, 100, "new tokens of the page at most"),
            _option("--repeat", int, 5, "passes without the profiler, for the page's time"),
            _option("--least-ms", float, 1.0, "shortest gap to list", metavar="MS"),
            _option("--trace", str, None, "keep the profile as a Chrome trace, for Perfetto", metavar="FILE"),
        ),
        settings=(),
    ),
    "fast-parity": _Measurement(
        "Compare the fast engine with the eager one, fed its tokens and free. Ends with one line of JSON.",
        (
            ("images", {"nargs": "*", "metavar": "IMAGE", "help": "images, folders or PDF files (default: "
                        "the samples, or drawn pages under random weights)"}),
            _option("--tokens", int, 400, "new tokens of a page at most"),
            _option("--batch", int, 8, "slots of the batch"),
            _option("--size", str, "1280x1280", "of drawn pages", metavar="WxH"),
        ),
        settings=("engine",),  # it compares all
    ),
    "kernels": _Measurement(
        "Profile the kernels of a stage with Nsight Compute, into the history.",
        (
            _option("--stage", str, None, f"whose kernels: {_STAGES}", required=True),
            _option("--tokens", int, 3, "new tokens of the page; 2 are one decode step"),
            _option("--skip", int, 0, "launches of the stage to leave out first"),
            _option("--count", int, 100, "launches to profile at most"),
            _flag("--brief", "fewer figures and rules, fewer replays of a launch: for a thousand launches"),
            _option("--ncu", str, "ncu", "Nsight Compute's command line", metavar="FILE"),
        ),
        settings=(),
    ),
    "soak": _Measurement(
        "Read many pages and watch whether memory stays flat. Ends with one line of JSON.",
        (
            _option("--pages", int, 2000, "how many pages to read"),
            _option("--tokens", int, 200, "new tokens of a page at most"),
            _option("--batch", int, None, "pages that the fast engine reads together (default: all, up "
                    "to 256)", metavar="N"),
        ),
        settings=(),
    ),
    "floor": _Measurement(
        "Compare recorded benches with the least time of each stage: CSV, and a picture.",
        (
            ("commits", {"nargs": "+", "metavar": "COMMIT", "help":
                         "commits with a recorded bench of the fast engine, the oldest first"}),
            _option("--config", str, None, "config.json of the recorded model", required=True),
            _option("--preset", str, "gundam", "of the recorded benches"),
            _option("--svg", str, None, "write the picture there", metavar="FILE"),
            _option("--history", str, None, "where runs are: a path, relative to the project, or a URL "
                    "(default: data/runs/history)", metavar="WHERE"),
        ),
    ),
}  # fmt: skip


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "measure", "Measure parts: a step, a stage, rounding, memory.")
    below = parser.add_subcommands(dest="name", metavar="NAME")
    for name, measurement in _MEASUREMENTS.items():
        measurement.add(add_subcommand(below, name, measurement.description))


def run(chosen: Namespace, console: Console, typed: str) -> int:
    if not console.is_terminal:
        console.width = COLUMNS
    measurement, options = _MEASUREMENTS[chosen.name], chosen[chosen.name]
    measurement.check(options)
    given: dict[str, Any] = {"console": console}
    if measurement.settings is not None:
        given["settings"] = settings_of(options, skip=measurement.settings)
    if measurement.on_gpu:
        from dsocr_core.measure.device import require_fast_engine_for

        require_fast_engine_for(f"measure {chosen.name}")
    function = import_module(f"dsocr_core.measure.{chosen.name.replace('-', '_')}").run
    with ExitStack() as stack:
        for name in inspect.signature(function).parameters.keys() - given.keys():
            if name == "cancel":
                given[name] = stack.enter_context(cancelled_by_interrupt())
            elif name == "size":
                given[name] = _size(options.size)
            else:
                value = options[name]
                given[name] = Path(value) if name in _PATHS and value is not None else value
        wanted = inspect.signature(function).parameters
        code: int | None = function(**{name: given[name] for name in wanted})
    return OK if code is None else code


def _size(text: str) -> tuple[int, int]:
    from dsocr_core.measure.synthetic_page import parse_size

    return parse_size(text)
