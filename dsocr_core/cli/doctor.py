"""`doctor`: what is on this machine, and what is missing for what."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.cli.options import add_json, add_settings, add_subcommand, settings_of
from dsocr_core.console import FAILED, OK, print_json

_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "doctor", "Say what is on this machine and what is missing for what.")
    parser.add_argument("--clear", action="store_true", help="delete what stopped writers left behind")
    add_json(parser)
    add_settings(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen)
    from dsocr_core.cli.examine import examine

    findings = examine(settings, chosen.clear)
    failed = any(finding.state == "missing" for finding in findings)
    if chosen.json:
        print_json({"findings": [asdict(finding) for finding in findings], "ok": not failed})
        return FAILED if failed else OK
    table = Table(title="What is here", title_justify="left")
    for column in ("", "State", "Found", "What to do"):
        table.add_column(column, overflow="fold", no_wrap=column in ("", "State"))
    for finding in findings:
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(finding.subject, state, Text(finding.detail), Text(finding.advice))
    console.print(table)
    return FAILED if failed else OK
