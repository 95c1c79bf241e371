"""One page through `compare PAGE --save --out`: what is done with its file, pixels and texts, counted."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import struct
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dsocr_core.engine.base as engine
import dsocr_core.reading.artifacts as artifacts
import dsocr_core.reading.postprocess as postprocess
import dsocr_core.reading.records as records
import dsocr_core.runs.result_cache as result_cache
from dsocr_core.cli.main import main
from dsocr_core.page import decode_pool
from dsocr_core.read.session import Session
from dsocr_core.settings import InferSettings, Settings, VendorSettings
from tests.support.paths import ROOT

_IN_OPEN, _IN_CLOSE_NOWRITE, _EVENT = 0x20, 0x10, struct.Struct("iIII")


class Opens:
    """Counts how often a file is opened, by whichever process."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(os.O_CLOEXEC)
        # Equal events that wait are one: what closes the file stands between two that open it.
        assert libc.inotify_add_watch(self._events, os.fsencode(path), _IN_OPEN | _IN_CLOSE_NOWRITE) >= 0
        self._path = path

    def close(self) -> int:
        self._path.read_bytes()  # there is something to read
        events = _EVENT.iter_unpack(os.read(self._events, 2**16))
        os.close(self._events)
        return sum(bool(mask & _IN_OPEN) for _, mask, _, _ in events) - 1


class Counts(Counter[str]):
    """Calls of functions, by a name."""

    def of(
        self,
        patch: pytest.MonkeyPatch,
        owner: Any,
        attribute: str,
        name: str,
        counts: Callable[..., bool] = lambda *_: True,
    ) -> None:
        real, lock = getattr(owner, attribute), threading.Lock()

        def call(*arguments: Any, **more: Any) -> Any:
            with lock:
                self[name] += counts(*arguments)
            return real(*arguments, **more)

        patch.setattr(owner, attribute, call)


def test_a_page_is_hashed_and_decoded_once_and_each_text_parsed_once(
    tmp_path: Path, interpreter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, out, history = tmp_path / "page.png", tmp_path / "out", tmp_path / "history"
    shutil.copy(ROOT / "data" / "samples" / "01-letter.png", page)
    monkeypatch.setattr(result_cache, "RUNS_DIRECTORY", tmp_path / "runs")
    counts = Counts()
    counts.of(monkeypatch, hashlib, "file_digest", "hashed", lambda file, *_: file.name == str(page))
    counts.of(monkeypatch, decode_pool._Worker, "ask", "decoded")
    for module in (records, engine, postprocess):
        # What is left of a text without its markup is another text, and is looked at for markup, too.
        counts.of(monkeypatch, module, "parse", "parsed", lambda text, *_: "<|ref|>" in text)
    counts.of(monkeypatch, artifacts, "draw_boxes", "drawn")
    opens = Opens(page)
    command = ["compare", str(page), "--save", "--out", str(out), "--history", str(history)]
    command += ["--vendor.interpreter", str(interpreter)]
    assert main([*command, "--preset", "tiny", "--infer.max-new-tokens", "60"]) == 0
    # Whether it may be read, its hash, the opening process; in the worker its size, and the published code.
    assert opens.close() == 5
    assert counts["hashed"] == 1 and counts["decoded"] == 1
    assert counts["parsed"] == 2
    assert counts["drawn"] == 2
    # The record, which the directory and the history share, the line of predictions and the page's info.json.
    found = files_with_text(tmp_path)
    names = ["info.json", "predictions.jsonl", "readings.parquet"]
    assert {name: sorted({file.name for file in files}) for name, files in found.items()} == {
        "eager": names, "vendor": names,
    }  # fmt: skip
    assert all(len({file.stat().st_ino for file in files}) == 3 for files in found.values())
    # The result cache names the directory that has them.
    vendor = VendorSettings(interpreter=str(interpreter))
    settings = Settings(preset="tiny", infer=InferSettings(max_new_tokens=60), vendor=vendor)
    session = Session(settings.for_comparison())
    recorded = session.recorded(session.settings.request(page))
    assert recorded is not None and recorded.verdict == "identical"


def files_with_text(folder: Path) -> dict[str, list[Path]]:
    """By backend, the files that hold its text."""
    lines = [*(folder / "out").glob("predictions.jsonl"), *(folder / "out").glob("*/predictions.jsonl")]
    texts = {line["backend"]: line["text_raw"] for file in lines for line in map(json.loads, file.open())}
    assert len(texts) == 2
    found: dict[str, list[Path]] = {name: [] for name in texts}
    for file in folder.rglob("*"):
        for name, text in texts.items():
            if file.suffix == ".parquet":
                rows = pq.read_table(file).to_pylist()
                holds = any(row.get("text_raw") == text and row["backend"] == name for row in rows)
            else:
                start = json.dumps(text)[1:40].encode()
                of_vendor = "vendor" in file.relative_to(folder).parts
                holds = file.is_file() and start in file.read_bytes() and (name == "vendor") == of_vendor
            found[name] += [file] if holds else []
    return found
