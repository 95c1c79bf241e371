"""The command line that makes a run again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.record import RunRecord, flattened
from dsocr_core.settings import Settings


def command_of(record: RunRecord, images: Sequence[str]) -> str | None:
    """The command that the run was recorded with, else the one its settings amount to.

    `images` are the files that it read. None for a run of another program that left no command.
    """
    if record.command:
        return record.command
    if record.source != "dsocr" or not images:
        return None
    usual = dict(flattened(asdict(Settings())))
    options = [
        f"--{name}={value}"
        for name, value in flattened(record.settings)
        if value is not None and name in usual and usual[name] != value
    ]
    command = "compare" if VENDOR in record.backends else "run"
    # A name that begins with a dash would be read as an option.
    files = [f"./{image}" if image.startswith("-") else image for image in images]
    return shlex.join(["python", "-m", "dsocr_core", command, *options, *files])


def checkout_words(record: RunRecord) -> str:
    """The code that made the run."""
    if record.git_commit is None:
        return "Its commit is not known."
    changed = {True: ", with changes that were not committed", False: "", None: ", perhaps with changes"}
    return f"Made at commit {record.git_commit}{changed[record.git_dirty]}."
