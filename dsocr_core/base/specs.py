"""Backends as a person names them, like `eager` or `endpoint:http://127.0.0.1:8000/v1`, and their settings.

What a side leaves out is that of the run. None holds a key: only the name of its environment variable. No
torch: they are checked before anything is loaded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from dsocr_core.base.errors import DsocrError, one_line

Kind = Literal["eager", "fast", "vendor", "endpoint", "command", "folder"]
ENGINES = ("eager", "fast")
"""Kinds that are engines of our own, in this process."""
Flavour = Literal["plain", "vllm", "sglang", "llamacpp", "ollama"]
"""Servers by the extensions of the protocol that they speak. `plain` has none."""
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
_FORMS = ", ".join(f"{kind}:{_TARGETS[kind]}" if kind in _TARGETS else kind for kind in _SETTINGS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")


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
        def check(holds: bool, name: str, words: str) -> None:
            require(holds, f"{self.kind}: {name}", str(getattr(self, name))[:20], words)

        check(bool(_NAME.fullmatch(self.name)), "name", "up to 60 letters, digits, '.', '_' or '-'")
        check(1 <= self.concurrency <= 64, "concurrency", "1 to 64")
        check(self.timeout_s is None or 0 < self.timeout_s < 1e9, "timeout_s", "a positive number of seconds")
        if self.kind == "vendor":
            published = self.attention in (None, "eager", "flash_attention_2")
            check(published, "attention", "eager or flash_attention_2")
            check(self.dtype != "float16", "dtype", "auto, bfloat16 or float32")
        if self.key_variable:
            words = "the name of an environment variable, never the key itself"
            check(self.key_variable.isidentifier(), "key_variable", words)
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
        words = "has a user, a query or a fragment in it; name the environment variable of a key with"
        raise SettingsError(f"endpoint: the address of {host} {words} key_variable")


def parse_backend(choice: BackendChoice, configured: Mapping[str, Any] | None = None) -> BackendSpec:
    """Parse a choice of a backend. `configured` are choices by name, which may be meant.

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
        form = f"{kind}:{_TARGETS[kind]}" if kind in _TARGETS else f"{kind} without a colon"
        raise SettingsError(f"backend '{text[:60]}': give {form}")
    own = {"kind": kind, "name": kind, "target": target.strip()}
    _require_names(values, _SETTINGS[kind], kind)
    return BackendSpec(**typed(BackendSpec, own | values, kind))


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


def _nested(choice: BackendChoice | Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted names into mappings in mappings."""
    found: dict[str, Any] = {}
    for name, value in ({"spec": choice} if isinstance(choice, str) else choice).items():
        first, *inner = str(name).split(".")
        for key in reversed(inner):
            value = {key: value}
        found = merge(found, {first: value})
    return found


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings at every depth; where both have a value, that of `over` wins."""
    found = dict(under)
    for name, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merge(found[name], value) if both else value
    return found


def _require_names(values: Iterable[str], names: Sequence[str], what: str) -> None:
    for name in values:
        if name not in names:
            raise SettingsError(f"{what} has no setting '{name[:40]}': it takes {', '.join(names)}")


def typed(kind: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Check values against the fields of a dataclass; a text is read as YAML where the field takes none.

    `what` is the dataclass in errors; null leaves a field out. Raises SettingsError.
    """
    _require_names(values, [each.name for each in fields(kind)], what)
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return {}
    from jsonargparse import ArgumentError

    try:
        found: dict[str, Any] = _parser(kind).parse_object(known, defaults=False).as_dict()
    except ArgumentError as error:
        words = re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.", r"\1", one_line(error, 200))
        raise SettingsError(f"{what}: {words.replace('Parser key', 'setting')}") from None
    return found


@functools.cache
def _parser(kind: type) -> Any:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, None)
    return parser
