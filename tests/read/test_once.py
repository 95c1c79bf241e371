"""One page read by A and B: how often its file is opened, hashed and decoded, and each text parsed."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.cli.main import main
from dsocr_core.engine import base
from dsocr_core.page import decode_pool
from dsocr_core.reading import postprocess, records
from dsocr_core.runs import result_cache
from tests.support.paths import SAMPLES

_IN_OPEN, _IN_CLOSE_NOWRITE = 0x20, 0x10


@pytest.mark.skipif(sys.platform != "linux", reason="inotify counts openings by any process")
def test_a_page_is_hashed_and_decoded_once_and_each_text_parsed_once(
    tmp_path: Path, interpreter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(shutil.copy(SAMPLES / "01-letter.png", tmp_path))
    monkeypatch.setattr(result_cache, "RUNS_DIRECTORY", tmp_path / "runs")
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, counted: Callable[[Any], bool] = lambda _: True) -> None:
        real = getattr(owner, name)

        def call(first: Any, *more: Any, **named: Any) -> Any:
            counts[name] += counted(first)
            return real(first, *more, **named)

        monkeypatch.setattr(owner, name, call)

    count(hashlib, "file_digest", lambda file: file.name == str(page))
    count(decode_pool._Worker, "ask")
    for module in (records, base, postprocess):
        count(module, "parse", lambda text: "<|ref|>" in text)  # not of what is left without its markup
    libc = ctypes.CDLL(None)
    events = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(events, os.fsencode(page), _IN_OPEN | _IN_CLOSE_NOWRITE) >= 0
    command = f"compare {page} --save --out {tmp_path}/out --history {tmp_path}/h --preset tiny"
    command += f" --vendor.interpreter {interpreter} --infer.max-new-tokens 12"
    assert main(command.split()) == 0
    opened = [mask for _, mask, _, _ in struct.iter_unpack("iIII", os.read(events, 2**16)) if mask & _IN_OPEN]
    os.close(events)
    assert counts == {"file_digest": 1, "ask": 1, "parse": 2}
    # Whether it may be read, its hash, the opening process; in the worker its size, and the published code.
    assert len(opened) == 5
