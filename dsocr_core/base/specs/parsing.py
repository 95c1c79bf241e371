"""From what a person writes to a specification: `endpoint:http://127.0.0.1:8000/v1`, or the same in YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from dsocr_core.base.specs.conversion import SettingRefused, made
from dsocr_core.base.specs.kinds import KINDS, SPECS, BackendSpec, Kind, SpecError

BackendChoice = str | dict[str, Any]
"""A specification, or its settings with the specification under `spec`."""

SPEC = "spec"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_DEEPEST = 8


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """The specification that a choice makes; `configured` are choices by name, which may be meant.

    Settings may be nested or dotted: `{"infer": {"max_new_tokens": 9}}` or `{"infer.max_new_tokens": 9}`.
    Raises SpecError or SettingRefused: one line.
    """
    configured = configured or {}
    values: dict[str, Any] = {SPEC: choice} if isinstance(choice, str) else nested(choice)
    text = values.pop(SPEC, None)
    if not isinstance(text, str) or not text.strip():
        raise SpecError(f"a backend has no {SPEC}: give {_kinds_words()}")
    text = text.strip()
    if text in configured:
        under = configured[text]
        if not isinstance(under, (str, Mapping)):
            raise SpecError(
                f"backends: {text[:40]} is no backend: give {_kinds_words()}, or settings with one"
            )
        merged = merge({SPEC: under} if isinstance(under, str) else nested(under), values)
        return parse_backend({"name": text, **merged})  # where a name is not looked up again
    kind, target = _split(text, configured)
    spec = SPECS[kind]
    given = {"target": target} if spec.target_words else {}
    try:
        found = made(spec, values, kind, **given)
    except SettingRefused as error:
        raise _elsewhere(error, values) from None
    if found.name and not _NAME.fullmatch(found.name):
        raise SpecError(f"backend name '{found.name[:40]}': give up to 60 letters, digits, '.', '_' or '-'")
    return found if found.name else replace(found, name=kind)


def parse_backends(
    choices: Sequence[BackendChoice], configured: Mapping[str, Any] | None = None
) -> tuple[BackendSpec, ...]:
    """Several, each under a name that none before it has: the second `eager` is `eager-2`."""
    found: list[BackendSpec] = []
    for choice in choices:
        spec = parse_backend(choice, configured)
        names = {other.name for other in found}
        name, number = spec.name, 1
        while name in names:
            number += 1
            name = f"{spec.name}-{number}"
        found.append(replace(spec, name=name))
    return tuple(found)


def _split(text: str, configured: Mapping[str, Any]) -> tuple[Kind, str]:
    """The kind, and what stands after its colon."""
    word, colon, target = text.partition(":")
    kind = next((each for each in KINDS if each == word), None)
    if kind is None:
        names = f", or one of {', '.join(configured)}" if configured else ""
        raise SpecError(f"backend '{text[:60]}' is not known: give {_kinds_words()}{names}")
    words = SPECS[kind].target_words
    if not words and colon:
        raise SpecError(f"backend '{text[:60]}': give {kind} without a colon")
    if words and not target.strip():
        raise SpecError(f"backend '{text[:60]}': give {kind}:{words}")
    return kind, target.strip()


def _kinds_words() -> str:
    return ", ".join(
        f"{kind}:{spec.target_words}" if spec.target_words else kind for kind, spec in SPECS.items()
    )


def _elsewhere(error: SettingRefused, values: Mapping[str, Any]) -> SettingRefused:
    """The same, with whose setting it is where another kind of backend has it."""
    unknown = next((name for name in values if f"'{str(name)[:40]}'" in str(error)), None)
    owners = [kind for kind, spec in SPECS.items() if unknown in {item.name for item in fields(spec)}]
    if unknown is None or not owners or unknown == "target":
        return error
    return SettingRefused(f"{error}; {unknown} is for {', '.join(owners)}")


# --- settings as mappings -------------------------------------------------------------------------


def nested(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Dotted names as mappings in mappings. Raises SpecError for what is nested too deeply."""
    if depth > _DEEPEST:
        raise SpecError(f"settings of a backend are nested deeper than {_DEEPEST} levels")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise SpecError(f"settings of a backend: '{str(name)[:40]}' is no name")
        first, dot, rest = name.partition(".")
        inner: Any = {rest: value} if dot else value
        if isinstance(inner, Mapping):
            inner = nested(inner, depth + 1)
        found = merge(found, {first: inner})
    return found


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, mapping by mapping; where both have a value, that of `over`."""
    found = dict(under)
    for name, value in over.items():
        before = found.get(name)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        found[name] = merge(before, value) if both else value  # type: ignore[arg-type]
    return found
