"""The backends by the kind of their specification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr_core.backend_specs.kinds import BackendSpec, CommandSpec, EndpointSpec, FolderSpec, Kind
from dsocr_core.backends.protocol import OpenedBackend
from dsocr_core.errors import DsocrError
from dsocr_core.records import VENDOR
from dsocr_core.settings import Settings


@dataclass(frozen=True)
class Opening:
    """What a backend is opened with beside its specification."""

    settings: Settings
    """Those of the backend: the run's with what it has otherwise."""
    results: Path | None = None
    """Directory of the result cache; None is the usual one."""
    engine_options: tuple[tuple[str, Any], ...] = ()
    """For our engines: `marks`, `ignore_eos` and `caches` of `LocalBackends`."""


Opener = Callable[[Any, Opening], OpenedBackend]


def open_backend(spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> OpenedBackend:
    """The backend of a specification under a run's settings. Nothing is loaded yet.

    Raises DsocrError for settings that cannot be, and for a kind that has no opener.
    """
    own = settings.of_spec(spec)
    given = opening or Opening(own)
    if (opener := OPENERS.get(spec.kind)) is None:
        raise DsocrError(f"backend {spec.kind} is not available")
    return opener(spec, Opening(own, given.results, given.engine_options))


def _engine(spec: BackendSpec, opening: Opening) -> OpenedBackend:
    return _in_process(spec.kind, spec.name, opening)


def _vendor(spec: BackendSpec, opening: Opening) -> OpenedBackend:
    return _in_process(VENDOR, spec.name, opening)


def _in_process(reads: str, name: str, opening: Opening) -> OpenedBackend:
    # Torch comes with it: only where a page is read in this process.
    from dsocr_core.backends.in_process import InProcess
    from dsocr_core.backends.local import LocalBackends

    local = LocalBackends(opening.settings, opening.results, **dict(opening.engine_options))
    return InProcess(local, reads, name)


def _endpoint(spec: EndpointSpec, opening: Opening) -> OpenedBackend:
    from dsocr_core.backends.endpoint.backend import Endpoint

    return Endpoint(spec, opening.settings)


def _folder(spec: FolderSpec, opening: Opening) -> OpenedBackend:
    from dsocr_core.backends.folder import FolderBackend

    return FolderBackend(spec, opening.settings)


def _command(spec: CommandSpec, opening: Opening) -> OpenedBackend:
    from dsocr_core.backends.command import CommandBackend

    return CommandBackend(spec, opening.settings)


OPENERS: dict[Kind, Opener] = {
    "eager": _engine,
    "fast": _engine,
    "vendor": _vendor,
    "endpoint": _endpoint,
    "command": _command,
    "folder": _folder,
}
"""What opens each kind. An opener imports what it needs when it is called."""
