"""The command line: `dsocr COMMAND` or `python -m dsocr_core COMMAND`; one file a subcommand beside this one.

Exit codes (`console.py`): 0 all well, 1 a page failed or differs, 2 bad usage. `--json` prints one JSON
document and nothing else on stdout; everything for people goes to stderr then. `bench` ends with one JSON
line always. Heavy imports (torch, DuckDB, pandas) come after the command line is known to be good.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from dsocr_core.cli import bench, compare, doctor, history, measure, run, trace
from dsocr_core.console import BAD_USAGE, FAILED, print_error, typed_command
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.threads import wait_politely


class Subcommand(Protocol):
    """A module of this package."""

    def add(self, commands: Any) -> None:
        """Add the subcommand's parser."""

    def run(self, chosen: Namespace, console: Console, typed: str) -> int:
        """Run it with the options `chosen`; returns the exit code. Raises DsocrError.

        `typed` is the command line that makes the run again.
        """


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "run": run,
    "compare": compare,
    "trace": trace,
    "bench": bench,
    "history": history,
    "measure": measure,
    "doctor": doctor,
}


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dsocr",
        allow_abbrev=False,
        description="Read pages with DeepSeek-OCR, compare backends page by page, measure what a page costs.",
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for subcommand in SUBCOMMANDS.values():
        subcommand.add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    wait_politely()
    parser = build_parser()
    options = parser.parse_args(arguments)
    console = Console(stderr=_wants_json(options))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    try:
        chosen = parser.instantiate(options)[options.command]
        return SUBCOMMANDS[options.command].run(chosen, console, typed_command(arguments))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "dsocr_core":
            raise
        print_error(console, f"the package {missing.name} is not installed: pip install -r requirements.txt")
        return BAD_USAGE
    except (Cancelled, KeyboardInterrupt) as stop:  # the latter while torch is imported
        print_error(console, str(stop) or "cancelled")
        return FAILED
    except DsocrError as error:
        print_error(console, str(error))
        return BAD_USAGE


def _wants_json(options: Namespace) -> bool:
    """Whether the subcommand, or the one below it, was given --json."""
    chosen = options[options.command]
    below = chosen[chosen.name] if "name" in chosen else chosen
    return bool(below.get("json", False))
