"""Specifications as a person writes them: `endpoint:http://127.0.0.1:8000/v1`, or the same in YAML."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from dsocr_core.base.errors import one_line
from dsocr_core.base.specs.kinds import SPECS, BackendSpec, SpecError

BackendChoice = str | dict[str, Any]
"""A specification, or its settings with the specification under `spec`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_DEEPEST = 8
_KINDS = ", ".join(f"{kind}:{spec.target_words}".rstrip(":") for kind, spec in SPECS.items())
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", list: "a list",
          Mapping: "names with values"}  # fmt: skip


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """Parse a choice of a backend; `configured` are choices by name, which may be meant.

    Settings may be nested or dotted: `{"infer": {"max_new_tokens": 9}}` or `{"infer.max_new_tokens": 9}`.
    Raises SpecError: one line.
    """
    values: dict[str, Any] = {"spec": choice} if isinstance(choice, str) else nested(choice)
    text = values.pop("spec", None)
    if not isinstance(text, str) or not text.strip():
        raise SpecError(f"a backend has no spec: give {_KINDS}")
    text = text.strip()
    if configured and text in configured:
        own = configured[text]
        if not isinstance(own, (str, Mapping)):
            raise SpecError(f"backends: {text[:40]} is no backend: give {_KINDS}, or settings with one")
        merged = merge({"spec": own} if isinstance(own, str) else nested(own), values)
        return parse_backend({"name": text, **merged})  # where a name is not looked up again
    kind, colon, target = text.partition(":")
    spec: type[BackendSpec] | None = SPECS.get(kind)  # type: ignore[call-overload]
    if spec is None:
        names = f", or one of {', '.join(configured)}" if configured else ""
        raise SpecError(f"backend '{text[:60]}' is not known: give {_KINDS}{names}")
    if bool(spec.target_words) != bool(target.strip()) or (colon and not spec.target_words):
        form = f"{kind}:{spec.target_words}" if spec.target_words else f"{kind} without a colon"
        raise SpecError(f"backend '{text[:60]}': give {form}")
    given = {"target": target.strip()} if spec.target_words else {}
    found = spec(**converted(spec, values, kind, given) | given)
    if found.name and not _NAME.fullmatch(found.name):
        raise SpecError(f"backend name '{found.name[:40]}': give up to 60 letters, digits, '.', '_' or '-'")
    return found if found.name else replace(found, name=kind)


def parse_backends(
    choices: Sequence[BackendChoice], configured: Mapping[str, Any] | None = None
) -> tuple[BackendSpec, ...]:
    """Parse several, each under a name that none before it has: the second `eager` is `eager-2`."""
    found: dict[str, BackendSpec] = {}
    for choice in choices:
        spec = parse_backend(choice, configured)
        numbered = (f"{spec.name}-{number}" for number in count(2))
        name = spec.name if spec.name not in found else next(each for each in numbered if each not in found)
        found[name] = replace(spec, name=name)
    return tuple(found.values())


def nested(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Turn dotted names into mappings in mappings. Raises SpecError for what is nested too deeply."""
    if depth > _DEEPEST:
        raise SpecError(f"settings of a backend are nested deeper than {_DEEPEST} levels")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise SpecError(f"settings of a backend: '{str(name)[:40]}' is no name")
        first, dot, rest = name.partition(".")
        inner: Any = {rest: value} if dot else value
        found = merge(found, {first: nested(inner, depth + 1) if isinstance(inner, Mapping) else inner})
    return found


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings at every depth; where both have a value, that of `over` wins."""
    found = dict(under)
    for name, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merge(found[name], value) if both else value
    return found


def converted(
    kind: type, values: Mapping[str, Any], what: str, without: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Convert values of YAML or a command line to the types of a dataclass's fields. Raises SpecError.

    `what` names the dataclass in errors; the fields `without` are not for values to name.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name not in (without or {})]
    for name in values.keys() - set(names):
        owners = [other for other, spec in SPECS.items() if name in spec.__dataclass_fields__]
        others = f"; {name} is for {', '.join(owners)}" if owners and name != "target" else ""
        raise SpecError(f"{what} has no setting '{str(name)[:40]}': it takes {', '.join(names)}{others}")
    return {name: convert(value, hints[name], f"{what}: {name}") for name, value in values.items()}


def convert(value: Any, hint: Any, what: str) -> Any:
    """Convert a value, or the text of one, to a type. Raises SpecError."""
    try:
        return _convert(value, hint)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError):
        shown = "null" if value is None else f"'{one_line(ValueError(str(value)), 40)}'"
        raise SpecError(f"{what} is {shown}: give {_words(hint)}") from None


def _convert(value: Any, hint: Any) -> Any:
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        for each in sorted(inner, key=lambda each: each is str):  # `str` takes everything
            try:
                return _convert(value, each)
            except (ValueError, TypeError, yaml.YAMLError, RecursionError):
                continue
    elif kind is Any or (kind is Literal and value in inner):
        return value
    if isinstance(value, str) and kind in (int, float, bool, list, dict, Mapping, types.NoneType):
        value = kind(value) if kind in (int, float) else yaml.safe_load(value)
    if kind is list and isinstance(value, (list, tuple)):
        return [_convert(item, inner[0]) for item in value]
    if kind in (dict, Mapping) and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _convert(item, inner[1]) for key, item in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or kind is dict:
        raise ValueError
    return value


def _words(hint: Any) -> str:
    """Name a type as an error does."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind in (Union, types.UnionType):
        return " or ".join(_words(each) for each in inner if each is not types.NoneType)
    return _WORDS.get(kind, "another value")
