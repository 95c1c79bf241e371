"""Kinds of backends, each with the settings that a side may give for itself.

What a side leaves out is that of the run. None holds a key: only the name of its environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from dsocr_core.base.errors import DsocrError

Kind = Literal["eager", "fast", "vendor", "endpoint", "command", "folder"]
Flavour = Literal["plain", "vllm", "sglang", "llamacpp", "ollama"]
"""Whose extensions of the protocol a server speaks; `plain` has none."""
Precision = Literal["off", "fp8-kv"]
"""Number type of the fast engine's KV caches: that of the weights, or 8 bits."""
_OVERRIDES = ("checkpoint", "preset", "prompt", "attention", "dtype", "device", "rotary", "precision")
"""Settings of a run that a side may have in its place under the same name."""
_MOST = {"concurrency": 64, "attempts": 10}


class SpecError(DsocrError):
    """A backend, or a setting of one, that is not possible; says what to give."""


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
            if not 1 <= values[name] <= _MOST[name]:
                raise SpecError(f"{self.kind}: {name} is {values[name]}: give 1 to {_MOST[name]}")
        seconds = values.get("timeout_s")
        if seconds is not None and not 0 < seconds < float("inf"):
            raise SpecError(f"{self.kind}: timeout_s is {seconds}: give a positive number of seconds")

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields of the run's settings that this side replaces, without `infer`."""
        names = [item.name for item in fields(self) if item.name in _OVERRIDES]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


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
        super().__post_init__()
        _require_address(self.target)
        if self.key_variable and not self.key_variable.isidentifier():
            raise SpecError(
                f"endpoint: key_variable is '{self.key_variable[:20]}': give the name of an environment "
                "variable, never the key itself"
            )


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


SPECS: dict[Kind, type[BackendSpec]] = {
    spec.kind: spec for spec in (EagerSpec, FastSpec, VendorSpec, EndpointSpec, CommandSpec, FolderSpec)
}


def _require_address(url: str) -> None:
    """Raises SpecError for what is no address of the web, and for one with a secret: settings are shown."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise SpecError(f"endpoint:{url[:60]} is no address: give http://HOST:PORT/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise SpecError(
            f"endpoint: the address of {host} has a user, a query or a fragment in it; leave it out, and "
            "name the environment variable of a key with key_variable"
        )
