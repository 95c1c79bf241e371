"""How a backend of a recorded run read: the run's settings, with what the backend had otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsocr_core.backend_specs.conversion import converted
from dsocr_core.backend_specs.kinds import BackendSpec, EndpointSpec, EngineSpec, VendorSpec
from dsocr_core.backend_specs.parsing import parse_backends
from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.records import POLICY_FIELDS, SIDES, VENDOR
from dsocr_core.settings import InferSettings


def infer_of(record: RunRecord, backend: str | None) -> Mapping[str, Any]:
    """The `infer` settings of a backend; empty where the record has none, and for runs of other programs."""
    infer = record.settings.get("infer") if record.source == "dsocr" else None
    if not isinstance(infer, dict):
        return {}
    spec = _spec(record, backend)
    if spec is None or not spec.infer:
        return infer
    try:
        return {**infer, **converted(InferSettings, spec.infer, "infer")}
    except DsocrError:
        return infer


def is_told(record: RunRecord, backend: str | None) -> bool:
    """Whether a backend reads with what `infer_of` gives: one of our engines, or the vendor."""
    return backend == VENDOR or isinstance(_spec(record, backend), EngineSpec | VendorSpec)


def policy_of(record: RunRecord, backend: str | None) -> dict[str, Any]:
    """Fields of a request in which a backend differed from the published code: `POLICY_FIELDS`.

    Empty for the published code itself, for what is never told them, and for runs from before there were any.
    """
    infer, spec = infer_of(record, backend), _spec(record, backend)
    told = isinstance(spec, EngineSpec) or (isinstance(spec, EndpointSpec) and spec.flavour == "dsocr")
    if backend == VENDOR or (spec is not None and not told):
        return {}
    usual = InferSettings()
    given = {
        name: infer[name] for name in POLICY_FIELDS if name in infer and infer[name] != getattr(usual, name)
    }
    if not given:
        return {}
    try:
        checked = InferSettings(**converted(InferSettings, given, "infer"))
    except DsocrError:
        return {}
    found = {name: getattr(checked, name) for name in given}
    return found | ({"ngram_whitelist": tuple(checked.ngram_whitelist)} if "ngram_whitelist" in given else {})


def _spec(record: RunRecord, backend: str | None) -> BackendSpec | None:
    """The specification of a backend that was named; None where none was, or the record has another form."""
    settings = record.settings
    sides = [settings.get(side) for side in SIDES]
    if sides == [None, None]:
        return None
    usual = (settings.get("engine") or "eager", VENDOR)
    choices = [side or other for side, other in zip(sides, usual, strict=True)]
    configured = settings.get("backends")
    if not all(isinstance(choice, (str, dict)) for choice in choices):
        return None
    try:
        specs = parse_backends(choices, configured if isinstance(configured, dict) else {})
    except DsocrError:
        return None
    return next((spec for spec in specs if spec.name == backend), None)
