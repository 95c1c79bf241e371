"""Backends on the command line: `--a eager --a.dtype float32 --b endpoint:URL --b.flavour vllm`.

Options that belong to the backend named before them become one value with it, which the parser knows as
`--a`, `--b` or `--backend`: `--b '{"spec": "endpoint:URL", "flavour": "vllm"}'`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.specs.parsing import BackendChoice

SIDE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "run": ("backend",),
    "compare": ("a", "b"),
}
"""By subcommand its options that name a backend."""

_FREE = "body"
"""A setting of any content: what is under it is read as YAML, everything else by its field's type."""


def joined_sides(given: Sequence[str]) -> list[str]:
    """The command line with each backend and its settings in one value. Raises DsocrError."""
    command = next((word for word in given if not word.startswith("-")), "")
    names = SIDE_OPTIONS.get(command, ())
    found: list[str] = []
    sides: list[tuple[str, dict[str, Any]]] = []
    words = iter(given)
    for word in words:
        if word == "--":
            found += [word, *words]
            break
        option, equals, value = word.partition("=")
        name, dot, setting = option.removeprefix("--").partition(".")
        if not option.startswith("--") or name not in names:
            found.append(word)
            continue
        if not equals and (value := next(words, "")) == "":
            raise DsocrError(f"{option}: expected a value")
        if not dot:
            sides.append((name, {"spec": value}))
            continue
        mine = next((settings for side, settings in reversed(sides) if side == name), None)
        if mine is None:
            raise DsocrError(f"{option} comes before --{name}: name the backend first")
        if setting.partition(".")[0] != _FREE:
            setting = setting.replace("-", "_")
        mine[setting] = _read(setting, value)
    for name, settings in sides:
        # A value that is no mapping stays as it was typed.
        text = settings["spec"] if len(settings) == 1 else json.dumps(settings)
        end = found.index("--") if "--" in found else len(found)
        found.insert(end, f"--{name}={text}")
    return found


def _read(setting: str, value: str) -> Any:
    if setting.partition(".")[0] != _FREE:
        return value
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError):
        return value


def choice_of(value: str) -> BackendChoice:
    """The backend that `joined_sides` made one value of. Raises DsocrError."""
    if not value.startswith("{"):
        return value
    try:
        settings = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise DsocrError(f"backend '{value[:40]}': not JSON ({one_line(error, 60)})") from error
    assert isinstance(settings, dict)
    return settings
