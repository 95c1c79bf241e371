"""Values of YAML, or texts of the command line, as the types that a dataclass's fields have."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from dsocr_core.base.errors import DsocrError, one_line

T = TypeVar("T")

_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}


class SettingRefused(DsocrError):
    """A setting that is not known there, or whose value has another type; names both in one line."""


def made(kind: type[T], values: Mapping[str, Any], what: str, **given: Any) -> T:
    """An instance of a dataclass from values by field; `given` are fields that `values` may not name.

    `what` is what the settings are of, as an error says it. Raises SettingRefused, and what the dataclass
    itself raises.
    """
    return kind(**given, **converted(kind, values, what, without=given))


def converted(
    kind: type, values: Mapping[str, Any], what: str, without: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Values by field of a dataclass, as the fields' types. Raises SettingRefused."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name not in (without or {})]
    for name in values:
        if name not in names:
            raise SettingRefused(f"{what} has no setting '{str(name)[:40]}': it takes {', '.join(names)}")
    return {name: convert(value, hints[name], f"{what}: {name}") for name, value in values.items()}


def convert(value: Any, hint: Any, what: str) -> Any:
    """A value as that type. Raises SettingRefused."""
    try:
        return _convert(value, hint)
    except (ValueError, TypeError):
        shown = "null" if value is None else f"'{one_line(ValueError(str(value)), 40)}'"
        raise SettingRefused(f"{what} is {shown}: give {_words(hint)}") from None


def _convert(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, get_args(hint))
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise ValueError
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _mapping(value, get_args(hint)[1])
    if origin in (list, tuple):
        items = _anything(value) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise ValueError
        return origin(_convert(item, get_args(hint)[0]) for item in items)
    return _scalar(value, hint)


def _first_that_fits(value: Any, hints: tuple[Any, ...]) -> Any:
    """`str` takes everything, so it comes last."""
    for hint in sorted(hints, key=lambda each: each is str):
        try:
            return _convert(value, hint)
        except (ValueError, TypeError):
            continue
    raise ValueError


def _mapping(value: Any, item: Any) -> dict[str, Any]:
    content = _anything(value) if isinstance(value, str) else value
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise ValueError
    return {name: _convert(each, item) for name, each in content.items()}


def _scalar(value: Any, hint: Any) -> Any:
    if hint is types.NoneType:
        if value is None or value == "null":
            return None
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _BOOLEANS[value.lower()] if value.lower() in _BOOLEANS else _fails()
    elif hint is str:
        if isinstance(value, str):
            return value
    elif hint in (int, float) and not isinstance(value, bool) and isinstance(value, (int, float, str)):
        return hint(value) if hint is float or not isinstance(value, float) else _fails()
    return _fails()


def _fails() -> Any:
    raise ValueError


def _anything(value: Any) -> Any:
    """A text of the command line as YAML reads it; everything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError):
        return value


def _words(hint: Any) -> str:
    """A type as an error says it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in inner if each is not types.NoneType)
    if origin is not None:
        return "a list" if origin in (list, tuple) else "names with values"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(hint, "another value")
