"""The command lines that read the page again, and that find why the texts differ."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.specs import EagerSpec, FastSpec
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.commands import command_line
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison


def read_again(request: OcrRequest, settings: Settings) -> str:
    """The command line that reads this page again under these settings."""
    images = [
        str(image.relative_to(PROJECT_ROOT) if image.is_relative_to(PROJECT_ROOT) else image)
        for image in request.images
    ]
    more = ["--pages-together"] if request.together else []
    named = (choice["spec"] if isinstance(choice, dict) else choice for choice in (settings.a, settings.b))
    if any(name in settings.backends for name in named):
        more.append(f"--config={os.environ.get('DSOCR_CONFIG', 'FILE')}")
    return command_line("compare", asdict(settings), images, *more)


def find_cause(settings: Settings, comparison: Comparison) -> str:
    """The command that tries other settings on A; empty where the texts agree or A is no engine of ours."""
    a, b = comparison.a, comparison.b
    different = a is not None and b is not None and a.text_raw != b.text_raw
    if not different or not isinstance(settings.spec("a"), EagerSpec | FastSpec):
        return ""
    return f"{read_again(comparison.request, settings)} --why 1"
