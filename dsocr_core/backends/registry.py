"""The backends by the kind of their specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsocr_core.backends.backend import Backend, Opening
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.kinds import BackendSpec, CommandSpec, EndpointSpec, FolderSpec, Kind
from dsocr_core.settings import Settings

Opener = Callable[[Any, Settings, Opening], Backend]


def open_backend(spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> Backend:
    """The backend of a specification under a run's settings. Nothing is loaded yet.

    Raises DsocrError for settings that cannot be, and for a kind that has no opener.
    """
    if (opener := OPENERS.get(spec.kind)) is None:
        raise DsocrError(f"backend {spec.kind} is not available")
    return opener(spec, settings.of_spec(spec), opening or Opening())


def _engine(spec: BackendSpec, settings: Settings, opening: Opening) -> Backend:
    # Torch comes with it: only where a page is read in this process.
    from dsocr_core.backends.on_device import EngineBackend

    return EngineBackend(spec, settings, opening)


def _vendor(spec: BackendSpec, settings: Settings, opening: Opening) -> Backend:
    from dsocr_core.backends.on_device import PublishedBackend

    return PublishedBackend(spec, settings, opening)


def _endpoint(spec: EndpointSpec, settings: Settings, opening: Opening) -> Backend:
    from dsocr_core.backends.endpoint.backend import Endpoint

    return Endpoint(spec, settings)


def _folder(spec: FolderSpec, settings: Settings, opening: Opening) -> Backend:
    from dsocr_core.backends.folder import FolderBackend

    return FolderBackend(spec, settings)


def _command(spec: CommandSpec, settings: Settings, opening: Opening) -> Backend:
    from dsocr_core.backends.command import CommandBackend

    return CommandBackend(spec, settings)


OPENERS: dict[Kind, Opener] = {
    "eager": _engine,
    "fast": _engine,
    "vendor": _vendor,
    "endpoint": _endpoint,
    "command": _command,
    "folder": _folder,
}
"""Openers by kind. An opener imports what it needs when it is called."""
