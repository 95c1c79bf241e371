"""What decides a run's results: settings, checkpoint, code, inputs; compared when a run goes on."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dsocr_core.backend_specs.conversion import converted
from dsocr_core.errors import DsocrError
from dsocr_core.outputs.fingerprints import checkpoint_fingerprint, code_version
from dsocr_core.settings import InferSettings, Settings, VendorSettings

FORMAT = 1
_UNDECIDING = ("history", "clean_pages", "draft", "tolerance", "b", "checkpoint")
"""Settings that change no result of one backend; what the checkpoint is, its fingerprint says."""


class OtherJob(DsocrError):
    """The output was made otherwise; names the first difference."""


@dataclass(frozen=True)
class Job:
    """A run over many pages, as its output's `run.json` describes it."""

    settings: Mapping[str, Any]
    """As JSON: all of `Settings`."""
    inputs: tuple[str, ...]
    shard_pages: int
    checkpoint: str
    """Its fingerprint: not where it lies."""
    code: str
    """A hash of what decides results in this code."""

    @classmethod
    def of(cls, settings: Settings, inputs: tuple[str, ...], shard_pages: int) -> Job:
        return cls(
            json.loads(json.dumps(asdict(settings))),
            inputs,
            shard_pages,
            checkpoint_fingerprint(settings.checkpoint),
            code_version(),
        )

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self), "inputs": list(self.inputs)}

    @functools.cached_property
    def digest(self) -> str:
        """Stands for all that decides a page's result beside the page; shard size and inputs do not."""
        facts = dict(self._facts())
        for name in ("inputs", "shard_pages"):
            facts.pop(name)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def _facts(self) -> Iterator[tuple[str, Any]]:
        return _facts(self.to_json())

    def check(self, document: Mapping[str, Any], location: str) -> None:
        """Raises OtherJob when an output of that `run.json` is another run's."""
        before, now = dict(_facts(document)), dict(self._facts())
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise OtherJob(
                    f"{location}: was made with {name} {_shown(before.get(name))}, now it is "
                    f"{_shown(now.get(name))}; give another --out, or that again"
                )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What decides results and is not the same in two `run.json`: "infer.max_new_tokens: 20 and 40".

    Raises DsocrError.
    """
    facts_a, facts_b = _own_facts(a), _own_facts(b)
    return [
        f"{name}: {_shown(facts_a.get(name))} and {_shown(facts_b.get(name))}"
        for name in sorted(facts_a.keys() | facts_b.keys())
        if facts_a.get(name) != facts_b.get(name)
    ]


def _own_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """As a backend's own settings come to, not as they were given."""
    settings = settings_of(document["settings"])
    own = asdict(settings.of_side("a")) | {"a": None}
    backend = {"backend": settings.spec("a").kind, "engine": None, "backends": None}
    return dict(_facts({**document, "inputs": None, "settings": own | backend}))


def settings_of(document: Mapping[str, Any]) -> Settings:
    """The settings of a job again. Raises DsocrError."""
    values = dict(document)
    nested = {"infer": InferSettings, "vendor": VendorSettings}
    for name, kind in nested.items():
        values[name] = kind(**converted(kind, values[name], name))
    values.pop("tolerance", None)
    return Settings(**values)


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """By a name as people write it: `infer.max_new_tokens`."""
    for name, value in document.items():
        if name != "settings":
            yield name, value
    yield from _flattened(
        {name: value for name, value in document.get("settings", {}).items() if name not in _UNDECIDING}
    )


def _flattened(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flattened(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False).strip('"')
    return text if len(text) <= 60 else f"{text[:57]}..."
