"""The command line: `python -m dsocr_core run|compare|bench|history|doctor`.

Exit codes: 0 all well, 1 a page failed or disagrees, 2 bad usage. `--json` prints one JSON document and
nothing else on stdout; everything for people goes to stderr then. `bench` ends with one JSON line always.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from dsocr_core.cli.bench import run_bench
from dsocr_core.cli.compare_runs import compare_runs, names_runs
from dsocr_core.cli.doctor import run_doctor
from dsocr_core.cli.history import run_history
from dsocr_core.cli.parser import build_parser
from dsocr_core.cli.read import read_pages
from dsocr_core.console import BAD_USAGE, FAILED, print_error
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.settings import Settings, history_location
from dsocr_core.threads import wait_politely


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    wait_politely()
    parser = build_parser()
    options = parser.parse_args(arguments)
    command = options.command
    chosen: Namespace = options[command]
    as_json = chosen[chosen.history_command].json if command == "history" else chosen.json
    console = Console(stderr=as_json)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    try:
        if command == "history":
            return run_history(chosen, console)
        settings = _settings(parser, options, command)
        if command == "doctor":
            return run_doctor(settings, chosen, console)
        if command == "bench":
            return run_bench(settings, chosen, console, arguments)
        if command == "compare" and names_runs(chosen):
            return compare_runs(chosen, history_location(settings), console)
        return read_pages(command, settings, chosen, console, arguments)
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


def _settings(parser: ArgumentParser, options: Namespace, command: str) -> Settings:
    """The settings of the command line and its YAML file. Raises SettingsError."""
    values = parser.instantiate(options)[command]
    names = Settings.__dataclass_fields__
    # `bench` takes several engines, and makes settings for each.
    given = {name: values[name] for name in names if command != "bench" or name != "engine"}
    return Settings(**given)
