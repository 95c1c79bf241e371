"""What a run's first page waits for, begun beside the imports that every run needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings


def begin(all_settings: Sequence[Settings]) -> None:
    """Start the process that opens the first page, import torch, and begin the rest on a thread."""
    from dsocr_core.page.decode_pool import start_one

    start_one(max(settings.max_pixels for settings in all_settings))
    fast = {
        settings.device
        for settings in all_settings
        if any(settings.spec(side).kind == "fast" for side in SIDES)
    }
    import torch  # noqa: F401 - here: on a thread beside other imports it took 0.4 s longer

    threading.Thread(target=_begin_rest, args=[fast], name="ahead").start()


def _begin_rest(fast: set[str]) -> None:
    """Make the GPU's context, Triton's hash of its files, and what pyarrow imports for its first rows."""
    with suppress(Exception):  # whatever it is, the engine says so
        for device in fast:
            from dsocr_core.engine.fast import prepare_device

            prepare_device(device)
    import pandas  # noqa: F401
