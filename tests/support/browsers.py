"""Which Chromium the tests start."""

from __future__ import annotations

import shutil

from dsocr_core.measure.served_app import BROWSERS

HEADLESS = "chromium-headless-shell"
"""Chromium without windows and toolbars: the same pages for a sixth less of CPU time."""


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, (HEADLESS, *BROWSERS))), None)
