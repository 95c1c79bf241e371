"""The engines by name."""

from __future__ import annotations

from dsocr_core.engine.base import Engine
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast.engine import FastEngine

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (EagerEngine, FastEngine)}
