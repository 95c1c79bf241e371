"""Backends on the command line: `--a eager --a.dtype float32 --b endpoint:URL --b.flavour vllm`.

Options that belong to the backend named before them become one value with it, which the parser knows as
`--a`, `--b` or `--backend`: `--b '{"spec": "endpoint:URL", "flavour": "vllm"}'`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.specs import BackendChoice

_SIDE_OPTIONS = {"run": ("backend",), "compare": ("a", "b")}


def joined_sides(words: Sequence[str]) -> list[str]:
    """The command line with each backend and its settings in one value. Raises DsocrError."""
    names = _SIDE_OPTIONS.get(next((word for word in words if not word.startswith("-")), ""), ())
    end = words.index("--") if "--" in words else len(words)
    others: list[str] = []
    sides: list[tuple[str, dict[str, Any]]] = []
    rest = iter(words[:end])
    for word in rest:
        option, equals, value = word.partition("=")
        name, dot, setting = option.removeprefix("--").partition(".")
        if not option.startswith("--") or name not in names:
            others.append(word)
            continue
        if not equals and (value := next(rest, "")) == "":
            raise DsocrError(f"{option}: expected a value")
        if not dot:
            sides.append((name, {"spec": value}))
            continue
        settings = next((settings for side, settings in reversed(sides) if side == name), None)
        if settings is None:
            raise DsocrError(f"{option} comes before --{name}: name the backend first")
        if setting.partition(".")[0] == "body":  # of any content: read as YAML
            settings[setting] = _yaml(value)
        else:
            settings[setting.replace("-", "_")] = value
    for name, settings in sides:  # a value that is no mapping stays as it was typed
        others.append(f"--{name}={settings['spec'] if len(settings) == 1 else json.dumps(settings)}")
    return others + list(words[end:])


def _yaml(value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError):
        return value


def choice_of(value: str) -> BackendChoice:
    """The backend that `joined_sides` made one value of. Raises DsocrError."""
    if not value.startswith("{"):
        return value
    try:
        settings: dict[str, Any] = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise DsocrError(f"backend '{value[:40]}': not JSON ({one_line(error, 60)})") from error
    return settings
