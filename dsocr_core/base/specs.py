"""Backends as a person names them, like `eager` or `endpoint:http://127.0.0.1:8000/v1`, and their settings.

What a side leaves out is that of the run. None holds a key: only the name of its environment variable. No
torch: they are checked before anything is loaded.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import yaml

from dsocr_core.base.errors import DsocrError, one_line

Kind = Literal["eager", "fast", "vendor", "endpoint", "command", "folder"]
ENGINES = ("eager", "fast")
"""Kinds that are engines of our own, in this process."""
Flavour = Literal["plain", "vllm", "sglang", "llamacpp", "ollama"]
"""Servers by the extensions of the protocol that they speak; `plain` has none."""
Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]
Dtype = Literal["auto", "bfloat16", "float16", "float32"]
Rotary = Literal["published", "float32"]
Precision = Literal["off", "fp8-kv"]
"""Number type of the fast engine's KV caches: that of the weights, or 8 bits."""
BackendChoice = str | dict[str, Any]
"""A specification, or its settings with the specification under `spec`."""

_OVERRIDES = ("checkpoint", "preset", "prompt", "attention", "dtype", "device", "rotary", "precision")
"""Settings of a run that a side may have in its place under the same name."""
_ALL = ("name", "preset", "prompt", "infer")
_ENGINE = (*_ALL, "checkpoint", "attention", "dtype", "device", "rotary")
_PROGRAM = (*_ALL, "concurrency", "timeout_s")
_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "eager": _ENGINE,
    "fast": (*_ENGINE, "precision"),
    "vendor": (*_ALL, "checkpoint", "attention", "dtype", "device", "interpreter", "timeout_s"),
    "endpoint": (*_PROGRAM, "flavour", "model", "key_variable", "body"),
    "command": _PROGRAM,
    "folder": _ALL,
}
_TARGETS = {"endpoint": "URL", "command": "TEMPLATE", "folder": "PATH"}
"""By kind what stands after the colon of its specification."""
_SPECS = {kind: f"{kind}:{_TARGETS[kind]}" if kind in _TARGETS else kind for kind in _SETTINGS}
_FORMS = ", ".join(_SPECS.values())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_DEEPEST = 8
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", list: "a list",
          Mapping: "names with values"}  # fmt: skip


class SettingsError(DsocrError):
    """A setting, or a backend, that is not possible; names it and what it takes."""


def require(holds: bool, name: str, value: Any, words: str) -> None:
    """Raises SettingsError unless a condition holds."""
    if not holds:
        raise SettingsError(f"{name} is {value}: give {words}")


@dataclass(frozen=True, kw_only=True)
class BackendSpec:
    """A backend and its settings, of which each kind has some; None and empty are the run's own.

    `target` is a server's base address like http://127.0.0.1:8000/v1, a program with its options, where
    {image} and {out} stand for the page's file and an empty folder, or a folder of texts. `infer` has fields
    of the run's `infer` settings. Of a server `key_variable` names the environment variable of its key,
    `concurrency` pages are in flight, each may take `timeout_s`, `body` wins over the flavour's fields (null
    takes one out), and an empty `model` is the first that it lists. Raises SettingsError.
    """

    kind: Kind
    name: str
    target: str = ""
    preset: str | None = None
    prompt: str | None = None
    infer: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    attention: Attention | None = None
    dtype: Dtype | None = None
    device: str | None = None
    rotary: Rotary | None = None
    precision: Precision | None = None
    interpreter: str | None = None
    timeout_s: float | None = None
    concurrency: int = 1
    flavour: Flavour = "plain"
    model: str = ""
    key_variable: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        vendor = self.kind == "vendor"
        of_vendor = self.attention in (None, "eager", "flash_attention_2"), self.dtype != "float16"
        key, seconds = self.key_variable, self.timeout_s
        for holds, name, value, words in (
            (_NAME.fullmatch(self.name), "name", self.name[:40], "up to 60 letters, digits, '.', '_' or '-'"),
            (not vendor or of_vendor[0], "attention", self.attention, "eager or flash_attention_2"),
            (not vendor or of_vendor[1], "dtype", self.dtype, "auto, bfloat16 or float32"),
            (1 <= self.concurrency <= 64, "concurrency", self.concurrency, "1 to 64"),
            (seconds is None or 0 < seconds < 1e9, "timeout_s", seconds, "a positive number of seconds"),
            (not key or key.isidentifier(), "key_variable", f"'{key[:20]}'",
             "the name of an environment variable, never the key itself"),
        ):  # fmt: skip
            require(bool(holds), f"{self.kind}: {name}", value, words)
        if self.kind == "endpoint":
            _require_address(self.target)

    @property
    def wait_s(self) -> float:
        """Seconds that a page of a server or a program may take."""
        return self.timeout_s or 600.0

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields of the run's settings that this side replaces, without `infer`."""
        return {name: value for name in _OVERRIDES if (value := getattr(self, name)) is not None}


def _require_address(url: str) -> None:
    """Raises SettingsError for what is no address, or has a secret in it: settings are shown."""
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


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """Parse a choice of a backend; `configured` are choices by name, which may be meant.

    Settings may be nested or dotted: `{"infer": {"max_new_tokens": 9}}` or `{"infer.max_new_tokens": 9}`.
    Raises SettingsError: one line.
    """
    values = _nested(choice)
    text = values.pop("spec", None)
    if not isinstance(text, str) or not (text := text.strip()):
        raise SettingsError(f"a backend has no spec: give {_FORMS}")
    if configured and text in configured:
        own = configured[text]
        if not isinstance(own, (str, Mapping)):
            raise SettingsError(f"backends: {text[:40]} is no backend: give {_FORMS}, or settings with one")
        return parse_backend({"name": text, **merge(_nested(own), values)})  # a name leads to no other
    kind, colon, target = text.partition(":")
    if kind not in _SETTINGS:
        names = f", or one of {', '.join(configured)}" if configured else ""
        raise SettingsError(f"backend '{text[:60]}' is not known: give {_FORMS}{names}")
    if (kind in _TARGETS) != bool(target.strip()) or (colon and kind not in _TARGETS):
        form = _SPECS[kind] if kind in _TARGETS else f"{kind} without a colon"
        raise SettingsError(f"backend '{text[:60]}': give {form}")
    own = {"kind": kind, "name": kind, "target": target.strip()}
    return BackendSpec(**own | typed(BackendSpec, values, kind, _SETTINGS[kind]))


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


def _nested(choice: BackendChoice | Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Turn dotted names into mappings in mappings. Raises SettingsError for what is nested too deeply."""
    if depth > _DEEPEST:
        raise SettingsError(f"settings of a backend are nested deeper than {_DEEPEST} levels")
    found: dict[str, Any] = {}
    for name, value in ({"spec": choice} if isinstance(choice, str) else choice).items():
        first, dot, rest = str(name).partition(".")
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


def typed(kind: type, values: Mapping[str, Any], what: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Check values against the fields of a dataclass; a text is read as YAML where the field takes none.

    `what` is the dataclass in errors, `names` are the fields that it takes (default: all). Raises
    SettingsError.
    """
    hints, names = get_type_hints(kind), names or [each.name for each in fields(kind)]
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            owners = ", ".join(kind for kind, takes in _SETTINGS.items() if name in takes)
            others = f"; {name} is for {owners}" if owners else ""
            raise SettingsError(f"{what} has no setting '{name[:40]}': it takes {', '.join(names)}{others}")
        kinds = get_args(hints[name]) if _is_union(hints[name]) else (hints[name],)
        try:
            found[name] = _typed(value, kinds)
        except (ValueError, yaml.YAMLError, RecursionError):
            shown = "null" if value is None else f"'{one_line(ValueError(str(value)), 40)}'"
            words = " or ".join(_words(each) for each in kinds if each is not types.NoneType)
            raise SettingsError(f"{what}: {name} is {shown}: give {words}") from None
    return found


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _typed(value: Any, kinds: Sequence[Any]) -> Any:
    """A value, or the text of one, as one of some types. Raises ValueError, YAMLError, RecursionError."""
    texts = [each for each in kinds if each is str or get_origin(each) is Literal]
    is_yaml = isinstance(value, str) and not {*kinds} <= {*texts, types.NoneType}
    read = yaml.safe_load(value) if is_yaml else value
    for kind in (each for each in kinds if each not in texts):
        origin, inner = get_origin(kind) or kind, get_args(kind)
        if origin in (int, float) and type(read) in (int, origin):
            return origin(read)
        if origin is list and isinstance(read, list) and all(isinstance(each, inner[0]) for each in read):
            return read
        if origin in (bool, Mapping, types.NoneType) and isinstance(read, origin):
            return read
    if isinstance(value, str) and any(value in (get_args(each) or (value,)) for each in texts):
        return value
    raise ValueError


def _words(hint: Any) -> str:
    choices = get_origin(hint) is Literal
    return f"one of {', '.join(get_args(hint))}" if choices else _WORDS[get_origin(hint) or hint]
