"""Job of a run, which decides its results: settings, checkpoint, code, inputs; compared when a run goes
on.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.fingerprints import checkpoint_fingerprint, code_version
from dsocr_core.runs.record import RunRecord, flattened, in_any_clone, record_run
from dsocr_core.settings import Settings, settings_of

FORMAT = 2
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

    def document(self, command: str | None = None) -> dict[str, Any]:
        """The `run.json` of its output: the record of a run, and what decides its pages."""
        return self.record(command).to_json() | self._decides()

    def record(self, command: str | None = None, notes: str | None = None) -> RunRecord:
        settings = settings_of(self.settings)
        backends = (settings.backend("a"),)
        made = record_run(settings, [], command, notes=notes)
        return replace(made, backends=backends, preset=settings.preset_name)

    def _decides(self) -> dict[str, Any]:
        own = {name: value for name, value in asdict(self).items() if name != "settings"}
        settings = in_any_clone(self.settings)
        return {"settings": settings, "cluster": {"format": FORMAT, **own, "inputs": list(self.inputs)}}

    @functools.cached_property
    def digest(self) -> str:
        """Stands for all that decides a page's result beside the page; shard size and inputs do not."""
        facts = _facts(self._decides())
        for name in ("inputs", "shard_pages"):
            facts.pop(name)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def check(self, document: Mapping[str, Any], location: str) -> None:
        """Raises OtherJob when an output of that `run.json` is another run's."""
        for name, was, now in _different(_facts(document), _facts(self._decides())):
            raise OtherJob(
                f"{location}: was made with {name} {was}, now it is {now}; give another --out, or that again"
            )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """List what decides results and is not the same in two `run.json`: "infer.max_new_tokens: 20 and 40".

    Raises DsocrError.
    """
    both = _different(_own_facts(a), _own_facts(b))
    return [f"{name}: {was} and {now}" for name, was, now in both]


def _own_facts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """As a backend's own settings come to, not as they were given."""
    settings = settings_of(document["settings"])
    own = asdict(settings.of_side("a")) | {"a": None}
    backend = {"backend": settings.spec("a").kind, "engine": None, "backends": None}
    return _facts({"cluster": {**document["cluster"], "inputs": None}, "settings": own | backend})


def _facts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """By a name as people write it: `infer.max_new_tokens`."""
    settings = document.get("settings", {}).items()
    return dict(
        flattened({**document["cluster"], **{n: value for n, value in settings if n not in _UNDECIDING}})
    )


def _different(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """Names in order, with both values as they are shown."""
    names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    return [(name, _shown(a.get(name)), _shown(b.get(name))) for name in names]


def _shown(text: str | None) -> str:
    return "nothing" if text is None else text if len(text) <= 60 else f"{text[:57]}..."
