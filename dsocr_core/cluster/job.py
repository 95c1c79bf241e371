"""Job of a run: settings, checkpoint, code and inputs, which must be the same when the run resumes."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import shortened
from dsocr_core.reading.fingerprints import checkpoint_fingerprint, code_version, result_key
from dsocr_core.runs.record import flattened, in_any_clone, record_run
from dsocr_core.settings import Settings, settings_of

FORMAT = 2
_UNDECIDING = ("history", "clean_pages", "draft", "tolerance", "b", "checkpoint")
"""Settings that do not change results. The checkpoint is among them: its fingerprint is compared."""
_SHOWN = 60
"""Most characters of a value in an error."""
Facts = Mapping[str, str | None]
"""Values by their dotted names: `infer.max_new_tokens`."""


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
        """The output's `run.json`: the record of a run, and what decides its pages."""
        settings = settings_of(self.settings)
        record = replace(
            record_run(settings, [], None), backends=(settings.backend("a"),), preset=settings.preset_name
        )
        return record.to_json() | self._decides()

    def _decides(self) -> dict[str, Any]:
        own = {name: value for name, value in asdict(self).items() if name != "settings"}
        cluster = {"format": FORMAT, **own, "inputs": list(self.inputs)}
        return {"settings": in_any_clone(self.settings), "cluster": cluster}

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all that decides a page's result, except the page. Shard size and inputs are not in it."""
        facts = _facts(self._decides())
        own = {name: value for name, value in facts.items() if name not in ("inputs", "shard_pages")}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:32]

    def name_at(self, location: str) -> str:
        """Its name on a scheduler, whose workers may read for other jobs and into other outputs."""
        return f"dsocr-{result_key({'job': self.digest, 'output': location})[:12]}"

    def check(self, document: Mapping[str, Any], location: str) -> None:
        """Raise DsocrError where an output's `run.json` is of another job."""
        sides = _facts(document), _facts(self._decides())
        for name in sorted({*sides[0], *sides[1]}):
            was, now = (shortened(each.get(name) or "nothing", _SHOWN) for each in sides)
            if sides[0].get(name) != sides[1].get(name):
                raise DsocrError(
                    f"{location}: was made with {name} {was}, now it is {now}; give another --out, or that "
                    "again"
                )


def _facts(document: Mapping[str, Any]) -> Facts:
    settings = document.get("settings", {}).items()
    decide = {name: value for name, value in settings if name not in _UNDECIDING}
    return dict(flattened({**document["cluster"], **decide}))
