"""`doctor`: what is on this machine, and what is missing for what."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import FAILED, OK, print_json
from dsocr_core.base.paths import HISTORY
from dsocr_core.settings import Dtype, Settings

_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}


def doctor(
    *,
    checkpoint: str = Settings.checkpoint,
    dtype: Dtype = "auto",
    history: str = HISTORY,
    clear: bool = False,
    json: bool = False,
    console: Console,
) -> int:
    """Say what is on this machine and what is missing for what.

    Args:
        checkpoint: the checkpoint to look at
        dtype: number type that it would be read in
        clear: delete what stopped writers left behind
    """
    from dsocr_core.cli.examine import examine

    findings = examine(Settings(checkpoint=checkpoint, dtype=dtype, history=history), clear)
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
