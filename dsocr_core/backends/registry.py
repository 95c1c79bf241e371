"""The backends by the kind of their specification."""

from __future__ import annotations

from importlib import import_module

from dsocr_core.backends.backend import Backend, Opening
from dsocr_core.base.specs import BackendSpec, Kind
from dsocr_core.settings import Settings

BACKENDS: dict[Kind, tuple[str, str]] = {
    "eager": ("on_device", "EngineBackend"),
    "fast": ("on_device", "EngineBackend"),
    "vendor": ("on_device", "PublishedBackend"),
    "endpoint": ("endpoint", "Endpoint"),
    "command": ("command", "CommandBackend"),
    "folder": ("folder", "FolderBackend"),
}
"""Modules and classes by kind; imported when one is opened, as torch comes with some."""


def open_backend(spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> Backend:
    """The backend of a specification under a run's settings. Nothing is loaded yet.

    Raises DsocrError for settings that cannot be.
    """
    module, name = BACKENDS[spec.kind]
    made = getattr(import_module(f"dsocr_core.backends.{module}"), name)
    more = (opening or Opening(),) if module == "on_device" else ()
    backend: Backend = made(spec, settings.of_spec(spec), *more)
    return backend
