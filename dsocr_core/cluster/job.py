"""Job of a run: settings, checkpoint, code and inputs, which decide its results; compared when it goes on."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import shortened
from dsocr_core.reading.fingerprints import checkpoint_fingerprint, code_version
from dsocr_core.runs.record import RunRecord, flattened, in_any_clone, record_run
from dsocr_core.settings import Settings, settings_of

FORMAT = 2
_UNDECIDING = ("history", "clean_pages", "draft", "tolerance", "b", "checkpoint")
"""Settings that change no result of one backend; what the checkpoint is, its fingerprint says."""
_SHOWN = 60
"""Characters of a value in an error."""


class OtherJob(DsocrError):
    """The output was made otherwise; names the first difference."""


@dataclass(frozen=True)
class Job:
    """A run over many pages, as its output's `run.json` describes it.

    `settings` are all of `Settings` as JSON, `checkpoint` is its fingerprint, not its place, and `code` a
    hash of what decides results in this code.
    """

    settings: Mapping[str, Any]
    inputs: tuple[str, ...]
    shard_pages: int
    checkpoint: str
    code: str

    @classmethod
    def of(cls, settings: Settings, inputs: tuple[str, ...], shard_pages: int) -> Job:
        values = json.loads(json.dumps(asdict(settings)))
        return cls(values, inputs, shard_pages, checkpoint_fingerprint(settings.checkpoint), code_version())

    def document(self) -> dict[str, Any]:
        """The `run.json` of its output: the record of a run, and what decides its pages."""
        return self.record().to_json() | self._decides()

    def record(self, command: str | None = None, notes: str | None = None) -> RunRecord:
        settings = settings_of(self.settings)
        record = record_run(settings, [], command, notes=notes)
        return replace(record, backends=(settings.backend("a"),), preset=settings.preset_name)

    def _decides(self) -> dict[str, Any]:
        own = {name: value for name, value in asdict(self).items() if name != "settings"}
        cluster = {"format": FORMAT, **own, "inputs": list(self.inputs)}
        return {"settings": in_any_clone(self.settings), "cluster": cluster}

    @functools.cached_property
    def digest(self) -> str:
        """Stands for all that decides a page's result beside the page; shard size and inputs do not."""
        facts = _facts(self._decides())
        own = {name: value for name, value in facts.items() if name not in ("inputs", "shard_pages")}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:32]

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
    return [f"{name}: {was} and {now}" for name, was, now in _different(_own_facts(a), _own_facts(b))]


def _own_facts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """As a backend's own settings come to, not as they were given."""
    settings = settings_of(document["settings"])
    own = asdict(settings.of_side("a")) | {"a": None}
    backend = {"backend": settings.spec("a").kind, "engine": None, "backends": None}
    return _facts({"cluster": {**document["cluster"], "inputs": None}, "settings": own | backend})


def _facts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """By a name as people write it: `infer.max_new_tokens`."""
    settings = document.get("settings", {}).items()
    decide = {name: value for name, value in settings if name not in _UNDECIDING}
    return dict(flattened({**document["cluster"], **decide}))


def _different(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """Names in order, with both values as they are shown."""

    def shown(text: str | None) -> str:
        return "nothing" if text is None else shortened(text, _SHOWN)

    names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    return [(name, shown(a.get(name)), shown(b.get(name))) for name in names]
