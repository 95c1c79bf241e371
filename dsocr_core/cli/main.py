"""The command line: `dsocr COMMAND` or `python -m dsocr_core COMMAND`; one file a subcommand beside this one.

Exit codes (`console.py`): 0 all well, 1 a page failed or differs, 2 bad usage or an error. `--json` prints
one JSON document and nothing else on stdout; everything for people goes to stderr then. `bench` ends with one
JSON line always. `--debug`, anywhere on the line, shows where an error came from. Heavy imports (torch,
DuckDB, pandas) come after the command line is known to be good.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from dsocr_core.cli import (
    accuracy,
    bench,
    compare,
    doctor,
    flops,
    history,
    measure,
    run,
    serve,
    status,
    trace,
    verify,
    why,
)
from dsocr_core.cli.options import SafeParser
from dsocr_core.cli.sides import joined_sides
from dsocr_core.console import BAD_USAGE, FAILED, SafeConsole, SafeFormatter, print_error, typed_command
from dsocr_core.engine.threads import wait_politely
from dsocr_core.error_log import LOG_FILE, unforeseen
from dsocr_core.errors import Cancelled, DsocrError, one_line
from dsocr_core.outside.yaml_bounds import UNREADABLE


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
    "status": status,
    "compare": compare,
    "verify": verify,
    "serve": serve,
    "trace": trace,
    "accuracy": accuracy,
    "why": why,
    "bench": bench,
    "flops": flops,
    "history": history,
    "measure": measure,
    "doctor": doctor,
}


class _Parser(SafeParser):
    """The parser of the whole command line, in which a backend has its settings behind it."""

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Namespace:
        """Raises DsocrError for settings of a backend that was not named."""
        given = joined_sides(sys.argv[1:] if args is None else args)
        parsed: Namespace = super().parse_args(given, *others, **more)
        return parsed


def build_parser(command: str | None = None) -> ArgumentParser:
    """The parser of all commands, or of one alone, which is made in a tenth of the time.

    What is no command leaves all of them, so that help and errors name them.
    """
    parser = _Parser(
        prog="dsocr",
        allow_abbrev=False,
        description="Read pages with DeepSeek-OCR, compare backends page by page, measure what a page costs.",
    )
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    chosen = SUBCOMMANDS.get(command or "")
    for subcommand in [chosen] if chosen else SUBCOMMANDS.values():
        subcommand.add(commands)
    return parser


def _parsed(parser: ArgumentParser, given: list[str]) -> Namespace:
    """The options. Raises DsocrError for what YAML or Unicode cannot read, where the parser has no answer."""
    try:
        return parser.parse_args(given)
    except UNREADABLE as error:
        raise DsocrError(f"the options or their --config file cannot be read ({one_line(error)})") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. An error is one line; `--debug` adds where it came from."""
    wait_politely()
    for stream in (sys.stdout, sys.stderr):  # a terminal in latin-1 or ASCII shows the rest as escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    console = SafeConsole(stderr="--json" in given)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        words = [each for each in given if each != "--debug"]
        parser = build_parser(words[0] if words else None)
        options = _parsed(parser, words)
        console = SafeConsole(stderr=_wants_json(options))
        chosen = parser.instantiate(options)[options.command]
        return SUBCOMMANDS[options.command].run(chosen, console, typed_command(arguments))
    except (Cancelled, KeyboardInterrupt) as stop:  # the latter while torch is imported
        print_error(console, str(stop) or "cancelled")
        return FAILED
    except BrokenPipeError:  # the reader of stdout has gone: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the one handler: no error leaves as a traceback
        if debug:
            traceback.print_exc()
        try:
            print_error(console, _words(error, given))
        except OSError:  # stdout is a full disk
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            print_error(SafeConsole(stderr=True), _words(error, given))
        return BAD_USAGE


def _words(error: Exception, given: Sequence[str]) -> str:
    """What a person is told of an error: one that nobody foresaw is in the log, with where it came from."""
    if isinstance(error, DsocrError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("dsocr_core"):
        return f"the package {error.name} is not installed: pip install -r requirements.txt"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return f"what this command prints or writes has no room: {(error.strerror or '').lower()}"
    return f"{unforeseen(error, ' '.join(['dsocr', *given]))} ({LOG_FILE}): {one_line(error, 200)}"


def _wants_json(options: Namespace) -> bool:
    """Whether the subcommand, or the one below it, was given --json."""
    chosen = options[options.command]
    below = chosen[chosen.name] if "name" in chosen else chosen
    return bool(below.get("json", False))
