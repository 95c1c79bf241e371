"""The command line: `dsocr COMMAND` or `python -m dsocr_core COMMAND`; one file a subcommand beside this one.

Exit codes (`console.py`): 0 all well, 1 a page failed or differs, 2 bad usage or an error; `gate` has two
more. `--json` prints one JSON document and nothing else on stdout; everything for people goes to stderr then.
`bench` ends with one JSON line always. Heavy imports (torch, DuckDB, pandas) come after the command line is
known to be good.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from jsonargparse import Namespace
from rich.text import Text

from dsocr_core.base.console import BAD_USAGE, FAILED, OK, SafeConsole, SafeFormatter
from dsocr_core.base.errors import LOG_FILE, Cancelled, DsocrError, one_line, unforeseen
from dsocr_core.base.sanitise import name_text
from dsocr_core.cli import flops, history
from dsocr_core.cli.bench import bench, gate, profile
from dsocr_core.cli.compare import compare
from dsocr_core.cli.doctor import doctor
from dsocr_core.cli.options import Command, Parser, add_command, add_parser, chosen_arguments, take_sides
from dsocr_core.cli.run import run
from dsocr_core.cli.trace import trace
from dsocr_core.engine.threads import wait_politely

COMMANDS: Mapping[str, Command | Mapping[str, Command]] = {
    "run": run, "compare": compare, "trace": trace, "bench": bench, "gate": gate, "flops": flops.COMMANDS,
    "history": history.COMMANDS, "profile": profile, "doctor": doctor,
}  # fmt: skip
_GROUPS = {
    "flops": "Predict what a page costs: FLOPs, bytes and time bounds.",
    "history": "Recorded runs: list, query, import, export, move to the trash.",
}
_UNREADABLE = (OSError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)
"""Errors that a YAML reader ends in, with its own error, on a value such as `!!float ""`."""


@functools.cache
def build_parser(only: str | None = None) -> Parser:
    """The parser of all commands, or of one."""
    words = "Read pages with DeepSeek-OCR, compare backends page by page, measure what a page costs."
    parser = Parser(prog="dsocr", description=words)
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        if only not in (None, name):
            continue
        if not isinstance(command, Mapping):
            add_command(commands, name, command)
            continue
        below = add_parser(commands, name, _GROUPS[name]).add_subcommands(dest="name", metavar="NAME")
        for word, of_group in command.items():
            add_command(below, word, of_group)
    return parser


def parse(words: Sequence[str]) -> tuple[Command, Namespace]:
    """The function that a command line names, and its options. Raises DsocrError; leaves where argparse does.

    YAML and Unicode fail in ways for which the parser has no answer.
    """
    parser = build_parser(words[0] if words and words[0] in COMMANDS else None)
    others, sides = take_sides(words)
    try:
        options = parser.instantiate(parser.parse_args(others))
    except _UNREADABLE as error:
        raise DsocrError(f"the options or their --config file cannot be read ({one_line(error)})") from error
    command, chosen = COMMANDS[options.command], options[options.command]
    if isinstance(command, Mapping):
        return command[chosen.name], chosen[chosen.name]
    for name, choices in sides.items():
        chosen[name] = choices if isinstance(chosen[name], list) else choices[-1]
    return command, chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code. An error is one line."""
    wait_politely()
    for stream in (sys.stdout, sys.stderr):  # a terminal in latin-1 or ASCII shows the rest as escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    console = SafeConsole(stderr="--json" in given)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        command, chosen = parse(given)
        console = SafeConsole(stderr=chosen.get("json", False))
        if not console.is_terminal:
            console.width = 400 if given[0] == "history" else 140
        values = chosen_arguments(command, chosen)
        if "typed" in inspect.signature(command).parameters:
            values["typed"] = name_text(shlex.join(["python", "-m", "dsocr_core", *given]))
        answer = command(**values)
        code = OK if answer is None else answer.print(chosen.get("json", False), console)
        sys.stdout.flush()  # what a full disk does not take is said here, not after the exit code
        return code
    except BrokenPipeError:  # the reader of stdout has gone: `| head`
        _close_stdout()
        return FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one handler: none leaves as a traceback
        try:
            console.print(_error_line(error, given))
        except OSError:  # stdout is a full disk
            _close_stdout()
            SafeConsole(stderr=True).print(_error_line(error, given))
        return FAILED if isinstance(error, Cancelled | KeyboardInterrupt) else BAD_USAGE


def _close_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _error_line(error: BaseException, given: Sequence[str]) -> Text:
    return Text.assemble(("error: ", "bold red"), " ".join(_words(error, given).split()))


def _words(error: BaseException, given: Sequence[str]) -> str:
    """Say what went wrong; of an unforeseen error the rest is in the log."""
    if isinstance(error, KeyboardInterrupt):  # while torch is imported
        return "cancelled"
    if isinstance(error, DsocrError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("dsocr_core"):
        return f"the package {error.name} is not installed: pip install -r requirements.txt"
    if isinstance(error, ValueError) and "embedded null" in str(error):  # --config, --to
        return "a path has a zero byte, which none can have; give another"
    if isinstance(error, OSError) and error.strerror:
        if error.filename is not None:
            return f"{error.filename}: {error.strerror.lower()}"
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            return f"what this command prints or writes has no room: {error.strerror.lower()}"
    return f"{unforeseen(error, ' '.join(['dsocr', *given]))} ({LOG_FILE}): {one_line(error, 200)}"
