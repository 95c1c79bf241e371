"""What a run's first page waits for: begun beside the imports that every run needs, or left out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings


def begin(all_settings: Sequence[Settings]) -> None:
    """Start the process that opens the first page, import pyarrow and torch, prepare GPUs on a thread."""
    from dsocr_core.page.decode_pool import start_one

    start_one(max(settings.max_pixels for settings in all_settings))
    fast = {each.device for each in all_settings if any(each.spec(side).kind == "fast" for side in SIDES)}
    rows_without_pandas()
    import torch  # noqa: F401 - alone: beside it other imports gain nothing

    threading.Thread(target=_prepare, args=[fast], name="ahead").start()


def _prepare(devices: set[str]) -> None:
    with suppress(Exception):  # whatever it is, the engine says so
        for device in devices:
            from dsocr_core.engine.fast import prepare_device

            prepare_device(device)


def rows_without_pandas() -> None:
    """Let pyarrow take lists without pandas, whose import with the first one takes up to a second.

    It looks for pandas again when a data frame is made, or taken. Until then a series is a list to it.
    """
    import pyarrow as pa

    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ImportError(name=name)

    sys.meta_path.insert(0, hidden := SimpleNamespace(find_spec=find_spec))
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
