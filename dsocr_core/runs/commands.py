"""Command lines that read pages again: options for what differs from the defaults."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dsocr_core.reading.records import SIDES
from dsocr_core.runs.record import flattened
from dsocr_core.settings import Settings

_PROGRAM = ("python", "-m", "dsocr_core")


def command_line(command: str, settings: Mapping[str, Any], images: Sequence[str], *more: str) -> str:
    """The command that reads these images under these settings, quoted for a shell; `more` follows them."""
    usual, backends = dict(flattened(asdict(Settings()))), settings.get("backends") or {}
    shared = {name: value for name, value in settings.items() if name not in (*SIDES, "backends")}
    options = [
        f"--{name}={value}"
        for name, value in flattened(shared)
        if value is not None and name in usual and usual[name] != value
    ]
    for side in SIDES:
        options += _side_options(side, settings.get(side), backends)
    # A name that begins with a dash would be read as an option.
    files = [f"./{image}" if image.startswith("-") else image for image in images]
    return shlex.join([*_PROGRAM, command, *options, *files, *more])


def _side_options(side: str, choice: Any, backends: Mapping[str, Any]) -> Iterator[str]:
    """A side's backend and the settings of its own, which follow it; nothing for the usual one."""
    if choice is None:
        return
    own = dict(choice) if isinstance(choice, Mapping) else {"spec": choice}
    if isinstance(named := backends.get(str(own["spec"])), Mapping):  # a command has no settings file
        own = {"name": own["spec"], **named, **own, "spec": named["spec"]}
    yield f"--{side}={own.pop('spec')}"
    body = own.pop("body", {})
    for name, value in flattened(own):
        if value is not None:
            yield f"--{side}.{name}={value}"
    for name, value in body.items():  # read as YAML, of which JSON is a part
        yield f"--{side}.body.{name}={json.dumps(value, ensure_ascii=False)}"
