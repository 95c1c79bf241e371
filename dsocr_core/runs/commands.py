"""Command lines that read pages again: options for what differs from the defaults."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dsocr_core.reading.records import SIDES, VENDOR
from dsocr_core.runs.record import RunRecord, flattened
from dsocr_core.settings import Settings

_PROGRAM = ("python", "-m", "dsocr_core")
_ELSEWHERE = (*SIDES, "backends")


def command_line(
    command: str, settings: Mapping[str, Any], images: Sequence[str], *more: str, side: str = ""
) -> str:
    """The command that reads these images under these settings, quoted for a shell.

    `side` is the option that A becomes where the command reads with one backend; `more` follows the images.
    """
    usual = dict(flattened(asdict(Settings())))
    shared = {name: value for name, value in settings.items() if name not in _ELSEWHERE}
    options = [
        f"--{name}={value}"
        for name, value in flattened(shared)
        if value is not None and name in usual and usual[name] != value
    ]
    for name in SIDES if not side else SIDES[:1]:
        options += _side_options(side or name, settings.get(name))
    # A name that begins with a dash would be read as an option.
    files = [f"./{image}" if image.startswith("-") else image for image in images]
    return shlex.join([*_PROGRAM, command, *options, *files, *more])


def _side_options(option: str, choice: Any) -> Iterator[str]:
    """A side's backend and the settings of its own, which follow it; nothing for the usual one."""
    if choice is None:
        return
    own = dict(choice) if isinstance(choice, Mapping) else {"spec": choice}
    yield f"--{option}={own.pop('spec')}"
    body = own.pop("body", {})
    for name, value in flattened(own):
        if value is not None:
            yield f"--{option}.{name}={value}"
    for name, value in body.items():  # read as YAML, of which JSON is a part
        yield f"--{option}.body.{name}={json.dumps(value, ensure_ascii=False)}"


def command_of(record: RunRecord, images: Sequence[str]) -> str | None:
    """The command that the run was recorded with, else the one its settings amount to.

    `images` are the files that it read. None for a run of another program that left no command.
    """
    if record.command:
        return record.command
    if record.source != "dsocr" or not images:
        return None
    settings = {**record.settings}
    for side in SIDES:
        settings[side] = _resolved(settings.get(side), settings.get("backends") or {})
    if len(record.backends) > 1:
        return command_line("compare", settings, images)
    if settings["a"] is None and VENDOR in record.backends:
        settings["a"] = VENDOR
    return command_line("run", settings, images, side="backend")


def _resolved(choice: Any, backends: Mapping[str, Any]) -> Any:
    """A side with the settings of the backend that it names: a command has no settings file."""
    own = dict(choice) if isinstance(choice, Mapping) else {"spec": choice}
    named = backends.get(str(own["spec"])) if choice is not None else None
    if not isinstance(named, Mapping):
        return choice
    return {**named, **{name: value for name, value in own.items() if name != "spec"}}
