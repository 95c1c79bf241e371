"""`doctor`: what is on this machine, and what is missing for what."""

from __future__ import annotations

from dataclasses import asdict, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import FAILED, OK, print_json
from dsocr_core.base.specs.parsing import BackendChoice
from dsocr_core.settings import Settings

_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}


def doctor(
    settings: Settings,
    *,
    backend: BackendChoice | None = None,
    clear: bool = False,
    json: bool = False,
    console: Console,
) -> int:
    """Say what is on this machine and what is missing for what.

    Args:
        backend: a server whose known faults are explained; its settings follow as --backend.KEY VALUE
        clear: delete what stopped writers left behind
    """
    from dsocr_core.cli.examine import examine

    findings = examine(replace(settings, a=backend or settings.a), clear)
    failed = any(finding.state == "missing" for finding in findings)
    if json:
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
