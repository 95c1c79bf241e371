"""Backends as a person names them, like `eager` or `endpoint:http://127.0.0.1:8000/v1`, and their settings.

What a side leaves out is that of the run. None holds a key: only the name of its environment variable. No
torch: they are checked before anything is loaded.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import yaml

from dsocr_core.base.errors import DsocrError, one_line

Kind = Literal["eager", "fast", "vendor", "endpoint", "command", "folder"]
Flavour = Literal["plain", "vllm", "sglang", "llamacpp", "ollama"]
"""Servers by the extensions of the protocol that they speak; `plain` has none."""
Precision = Literal["off", "fp8-kv"]
"""Number type of the fast engine's KV caches: that of the weights, or 8 bits."""
BackendChoice = str | dict[str, Any]
"""A specification, or its settings with the specification under `spec`."""
_OVERRIDES = ("checkpoint", "preset", "prompt", "attention", "dtype", "device", "rotary", "precision")
"""Settings of a run that a side may have in its place under the same name."""
_MOST = {"concurrency": 64, "attempts": 10}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_DEEPEST = 8


class SettingsError(DsocrError):
    """A setting, or a backend, that is not possible; names it and what it takes."""


def require(holds: bool, name: str, value: Any, words: str) -> None:
    """Raises SettingsError unless a condition holds."""
    if not holds:
        raise SettingsError(f"{name} is {value}: give {words}")


# --- kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BackendSpec:
    """Settings of every kind; None and empty are the run's own. An empty name is the kind.

    `infer` has fields of the run's `infer` settings that this side replaces.
    """

    name: str = ""
    preset: str | None = None
    prompt: str | None = None
    infer: Mapping[str, Any] = field(default_factory=dict)

    kind: ClassVar[Kind]
    target_words: ClassVar[str] = ""
    """Words for what stands after the colon of a specification; empty where nothing does."""

    def __post_init__(self) -> None:
        values = vars(self)
        for name in _MOST.keys() & values.keys():
            words = f"1 to {_MOST[name]}"
            require(1 <= values[name] <= _MOST[name], f"{self.kind}: {name}", values[name], words)
        if (seconds := values.get("timeout_s")) is not None:
            words = "a positive number of seconds"
            require(0 < seconds < float("inf"), f"{self.kind}: timeout_s", seconds, words)

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields of the run's settings that this side replaces, without `infer`."""
        return {name: value for name in _OVERRIDES if (value := getattr(self, name, None)) is not None}


@dataclass(frozen=True, kw_only=True)
class EngineSpec(BackendSpec):
    """One of our engines, in this process."""

    checkpoint: str | None = None
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] | None = None
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = None
    device: str | None = None
    rotary: Literal["published", "float32"] | None = None


@dataclass(frozen=True, kw_only=True)
class EagerSpec(EngineSpec):
    kind: ClassVar[Kind] = "eager"


@dataclass(frozen=True, kw_only=True)
class FastSpec(EngineSpec):
    kind: ClassVar[Kind] = "fast"
    precision: Precision | None = None


@dataclass(frozen=True, kw_only=True)
class VendorSpec(BackendSpec):
    """The checkpoint's own code in a worker process."""

    kind: ClassVar[Kind] = "vendor"
    checkpoint: str | None = None
    attention: Literal["eager", "flash_attention_2"] | None = None
    dtype: Literal["auto", "bfloat16", "float32"] | None = None
    device: str | None = None
    interpreter: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class EndpointSpec(BackendSpec):
    """A server that speaks OpenAI's chat completions, at a base address like http://127.0.0.1:8000/v1.

    `key_variable` names the environment variable of its key. `concurrency` pages are in flight, each may take
    `timeout_s` with all attempts (answers 429 and 503 are asked again). `body` wins over the flavour's
    fields; null takes one out. An empty model is the first that the server lists.
    """

    kind: ClassVar[Kind] = "endpoint"
    target_words: ClassVar[str] = "URL"
    target: str
    flavour: Flavour = "plain"
    model: str = ""
    key_variable: str = ""
    concurrency: int = 1
    timeout_s: float = 600.0
    attempts: int = 4
    stream: bool = True
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises SettingsError for what is no address, or has a secret in it: settings are shown."""
        super().__post_init__()
        url, key = self.target, self.key_variable
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
            raise SettingsError(f"endpoint:{url[:60]} is no address: give http://HOST:PORT/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise SettingsError(
                f"endpoint: the address of {host} has a user, a query or a fragment in it; leave it out, and "
                "name the environment variable of a key with key_variable"
            )
        words = "the name of an environment variable, never the key itself"
        require(not key or key.isidentifier(), "endpoint: key_variable", f"'{key[:20]}'", words)


@dataclass(frozen=True, kw_only=True)
class CommandSpec(BackendSpec):
    """A program with its options; {image} and {out} stand for the page's file and an empty folder."""

    kind: ClassVar[Kind] = "command"
    target_words: ClassVar[str] = "TEMPLATE"
    target: str
    concurrency: int = 1
    timeout_s: float = 600.0


@dataclass(frozen=True, kw_only=True)
class FolderSpec(BackendSpec):
    """Texts of another program in a folder, matched to pages by name."""

    kind: ClassVar[Kind] = "folder"
    target_words: ClassVar[str] = "PATH"
    target: str


SPECS: dict[str, type[BackendSpec]] = {
    spec.kind: spec for spec in (EagerSpec, FastSpec, VendorSpec, EndpointSpec, CommandSpec, FolderSpec)
}
_KINDS = ", ".join(f"{kind}:{spec.target_words}".rstrip(":") for kind, spec in SPECS.items())


# --- what a person writes -------------------------------------------------------------------------


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """Parse a choice of a backend; `configured` are choices by name, which may be meant.

    Settings may be nested or dotted: `{"infer": {"max_new_tokens": 9}}` or `{"infer.max_new_tokens": 9}`.
    Raises SettingsError: one line.
    """
    values: dict[str, Any] = _nested({"spec": choice} if isinstance(choice, str) else choice)
    text = values.pop("spec", None)
    if not isinstance(text, str) or not (text := text.strip()):
        raise SettingsError(f"a backend has no spec: give {_KINDS}")
    if configured and text in configured:
        own = configured[text]
        if not isinstance(own, (str, Mapping)):
            raise SettingsError(f"backends: {text[:40]} is no backend: give {_KINDS}, or settings with one")
        merged = merge(_nested({"spec": own} if isinstance(own, str) else own), values)
        return parse_backend({"name": text, **merged})  # where a name is not looked up again
    kind, colon, target = text.partition(":")
    if (spec := SPECS.get(kind)) is None:
        names = f", or one of {', '.join(configured)}" if configured else ""
        raise SettingsError(f"backend '{text[:60]}' is not known: give {_KINDS}{names}")
    if bool(spec.target_words) != bool(target.strip()) or (colon and not spec.target_words):
        form = f"{kind}:{spec.target_words}" if spec.target_words else f"{kind} without a colon"
        raise SettingsError(f"backend '{text[:60]}': give {form}")
    given = {"target": target.strip()} if spec.target_words else {}
    found = spec(**converted(spec, values, kind, given) | given)
    words = "up to 60 letters, digits, '.', '_' or '-'"
    require(not found.name or bool(_NAME.fullmatch(found.name)), "backend name", found.name[:40], words)
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


def _nested(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Turn dotted names into mappings in mappings. Raises SettingsError for what is nested too deeply."""
    if depth > _DEEPEST:
        raise SettingsError(f"settings of a backend are nested deeper than {_DEEPEST} levels")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise SettingsError(f"settings of a backend: '{str(name)[:40]}' is no name")
        first, dot, rest = name.partition(".")
        inner: Any = {rest: value} if dot else value
        found = merge(found, {first: _nested(inner, depth + 1) if isinstance(inner, Mapping) else inner})
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
    """Convert values of YAML or a command line to the types of a dataclass's fields.

    `what` names the dataclass in errors; the fields `without` are not for values to name. Raises
    SettingsError.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name not in (without or {})]
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            owners = [other for other, spec in SPECS.items() if name in spec.__dataclass_fields__]
            others = f"; {name} is for {', '.join(owners)}" if owners and name != "target" else ""
            takes = f"it takes {', '.join(names)}{others}"
            raise SettingsError(f"{what} has no setting '{str(name)[:40]}': {takes}")
        try:
            found[name] = _converted(value, hints[name])
        except _NOT_IT:
            shown = "null" if value is None else f"'{one_line(ValueError(str(value)), 40)}'"
            raise SettingsError(f"{what}: {name} is {shown}: give {_words(hints[name])}") from None
    return found


_NOT_IT = (ValueError, TypeError, yaml.YAMLError, RecursionError)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", list: "a list",
          Mapping: "names with values"}  # fmt: skip


def _converted(value: Any, hint: Any) -> Any:
    """A value, or the text of one, as a type. Raises what _NOT_IT has."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        for each in sorted(inner, key=lambda each: each is str):  # `str` takes everything
            try:
                return _converted(value, each)
            except _NOT_IT:
                continue
    elif kind is Any or (kind is Literal and value in inner):
        return value
    if isinstance(value, str) and kind in (int, float, bool, list, dict, Mapping, types.NoneType):
        value = kind(value) if kind in (int, float) else yaml.safe_load(value)
    if kind is list and isinstance(value, (list, tuple)):
        return [_converted(item, inner[0]) for item in value]
    if kind in (dict, Mapping) and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _converted(item, inner[1]) for key, item in value.items()}
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
