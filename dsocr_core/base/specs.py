"""Backends as a person names them, like `eager` or `endpoint:http://127.0.0.1:8000/v1`, and their settings.

None holds a key: only the name of its environment variable.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Literal

from dsocr_core.base.errors import DsocrError, one_line

Kind = Literal["eager", "fast", "vendor", "endpoint", "command", "folder"]
ENGINES = ("eager", "fast")
Flavour = Literal["plain", "vllm", "sglang", "llamacpp", "ollama"]
Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]
Dtype = Literal["auto", "bfloat16", "float16", "float32"]
Rotary = Literal["published", "float32"]
Precision = Literal["off", "fp8-kv"]
"""Number type of the fast engine's KV caches: that of the weights, or 8 bits."""
BackendChoice = str | dict[str, Any]
"""A specification, or its settings with the specification under `spec`."""

_READING = ("preset", "prompt", "infer")
_ON_DEVICE = ("checkpoint", "attention", "dtype", "device", "rotary", "precision")
_OF_RUN = (*_READING, *_ON_DEVICE)
_PROGRAM = ("name", *_READING, "concurrency", "timeout_s")
_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "eager": ("name", *_READING, *_ON_DEVICE[:-1]), "fast": ("name", *_OF_RUN),
    "vendor": ("name", *_READING, *_ON_DEVICE[:-2], "interpreter", "timeout_s"),
    "endpoint": (*_PROGRAM, "flavour", "model", "key_variable", "body"), "command": _PROGRAM,
    "folder": ("name", *_READING),
}  # fmt: skip
_TARGETS = {"endpoint": "URL", "command": "TEMPLATE", "folder": "PATH"}
_FORMS = ", ".join(f"{kind}:{_TARGETS[kind]}" if kind in _TARGETS else kind for kind in _SETTINGS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_ADDRESS = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?", re.ASCII)
_RANGES = {
    "no_repeat_ngram_size": (0, inf), "ngram_window": (0, inf), "max_tiles": (2, 64),
    "tile_size": (256, 1280), "max_megapixels": (0.001, 10_000), "pdf_dpi": (30, 600),
    "concurrency": (1, 64), "timeout_s": (0.001, 1e9), "boxes": (0, 1e9), "shift_percent": (0, 1e9),
    "character_error_rate": (0, 1e9),
}  # fmt: skip


class SettingsError(DsocrError):
    """A setting, or a backend, that is not possible; names it and what it takes."""


def require(holds: bool, name: str, value: Any, words: str) -> None:
    """Raises SettingsError unless a condition holds."""
    if not holds:
        raise SettingsError(f"{name} is {value}: give {words}")


def check_values(settings: Any, of: str = "") -> None:
    """Raises SettingsError for a number out of its range, and for no value: a file may have null for any."""
    for each in fields(settings):
        value, (least, most) = getattr(settings, each.name), _RANGES.get(each.name, (None, inf))
        if value is None:
            require("None" in str(each.type), of + each.name, "null", "a value, or leave the setting out")
        elif least is not None:
            require(least <= value <= most, of + each.name, value, f"{least:,} to {most:,}")


@dataclass(frozen=True, kw_only=True)
class BackendSpec:
    """A backend and its settings, of which each kind has some; `own` are in place of the run's.

    `target` is what follows the kind: an address, a program with its options, a folder. A page may take
    `timeout_s`, `body` wins over the flavour's fields (null takes one out), and an empty `model` is the first
    that the server lists. Raises SettingsError.
    """

    kind: Kind
    name: str
    target: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    concurrency: int = 1
    flavour: Flavour = "plain"
    model: str = ""
    key_variable: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_values(self, f"{self.kind}: ")
        named, words = _NAME.fullmatch(self.name), "up to 60 letters, digits, '.', '_' or '-'"
        require(named is not None, f"{self.kind}: name", self.name[:60], words)
        if self.kind == "vendor":
            attention = self.own.get("attention", "eager")
            published = attention in ("eager", "flash_attention_2")
            require(published, "vendor: attention", attention, "eager or flash_attention_2")
            require(self.own.get("dtype") != "float16", "vendor: dtype", "float16", "bfloat16 or float32")
        if self.key_variable and not self.key_variable.isidentifier():
            raise SettingsError("key_variable is no name of an environment variable, which has the key")
        if self.kind == "endpoint" and not _ADDRESS.fullmatch(self.target):
            words = "without user, query and fragment; key_variable names the environment variable of a key"
            raise SettingsError(f"endpoint: its address is not like http://HOST:PORT/v1, {words}")


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """Parse a choice of a backend, `configured` by name or not; see `nested`. Raises SettingsError."""
    values = nested(choice)
    text = str(values.pop("spec", "")).strip()
    if configured and text in configured:
        return parse_backend({"name": text, **merge(nested(configured[text]), values)})  # of no other name
    kind, _, target = text.partition(":")
    if kind not in _SETTINGS or (kind in _TARGETS) != bool(target.strip()):
        forms = ", ".join([_FORMS, *(configured or ())])
        raise SettingsError(f"backend '{text[:60]}' is not known: give {forms}")
    if unknown := [name for name in values if name not in _SETTINGS[kind]]:
        names = ", ".join(_SETTINGS[kind])
        raise SettingsError(f"{kind} has no setting '{unknown[0][:40]}': it takes {names}")
    own = {name: values.pop(name) for name in _OF_RUN if name in values}
    if kind == "vendor":
        own["vendor"] = {name: values.pop(name) for name in ("interpreter", "timeout_s") if name in values}
    values = {"kind": kind, "name": kind, "target": target.strip(), **values}
    return BackendSpec(own=own, **typed(BackendSpec, values, kind))


def parse_backends(
    choices: Sequence[BackendChoice], configured: Mapping[str, Any] | None = None
) -> tuple[BackendSpec, ...]:
    """Parse several, each under a name that none before it has: the second `eager` is `eager-2`."""
    found: dict[str, BackendSpec] = {}
    for choice in choices:
        spec = parse_backend(choice, configured)
        names = (spec.name, *(f"{spec.name}-{number}" for number in range(2, len(found) + 3)))
        name = next(each for each in names if each not in found)
        found[name] = replace(spec, name=name)
    return tuple(found.values())


def nested(choice: Any) -> dict[str, Any]:
    """Turn dotted names into mappings: of `{"infer.dtype": 9}` is made `{"infer": {"dtype": 9}}`."""
    found: dict[str, Any] = {}
    for name, value in (choice if isinstance(choice, Mapping) else {"spec": choice}).items():
        for key in reversed(str(name).split(".")):
            value = {key: value}
        found = merge(found, value)
    return found


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings at every depth; where both have a value, that of `over` wins."""
    found = dict(under)
    for name, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merge(found[name], value) if both else value
    return found


def typed(kind: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Check values against the fields of a dataclass; a text is read as YAML where the field takes none.

    `what` is the dataclass in errors; null leaves a field out. Raises SettingsError.
    """
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return {}
    from jsonargparse import ArgumentError

    try:
        found: dict[str, Any] = _parser(kind).parse_object(known, defaults=False).as_dict()
    except ArgumentError as error:
        raise SettingsError(f"{what}: {one_line(error, 200)}") from None
    return found


@functools.cache
def _parser(kind: type) -> Any:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, None)
    return parser
