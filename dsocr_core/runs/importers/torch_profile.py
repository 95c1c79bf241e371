"""torch.profiler: Chrome traces (`export_chrome_trace`, also packed).

A trace is read event by event and never held as a whole. A kernel belongs to the innermost stage whose
`record_function` or NVTX range was open where it was launched; where the launch is not in the trace, to the
one that was open when it began.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.imported import ImportedRun, Row, content_id
from dsocr_core.runs.importers.launches import Launches, stage_of_range
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    GZIP,
    MIB,
    Head,
    clean,
    file_digest,
    file_time,
)
from dsocr_core.runs.record import RunRecord

TRACE_LIMIT = 768 * MIB
"""Bytes of a trace, unpacked: some 3 million events, which take 15 s of computing and 0.4 GB."""
EVENT_LIMIT, VALUE_LIMIT = 4_000_000, 16 * MIB
_CHUNK = 4 * MIB
_NAME_LIMIT = 4_000
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime")
_RANGES = ("user_annotation", "gpu_user_annotation", "nvtx", "cpu_op")
_TRACE = re.compile(r'"traceEvents"\s*:|^\s*\[\s*\{\s*"(?:ph|name|cat)"\s*:')
BACKEND, _HOST = "torch", "host"


def is_trace(head: Head) -> bool:
    return _TRACE.search(head.text) is not None or (
        head.text.lstrip().startswith('{"schemaVersion"') or '"deviceProperties"' in head.text[:2000]
    )


def read_trace(file: Path) -> list[ImportedRun]:
    """The kernels and stages of a trace as a run. Raises InvalidFile."""
    found = _Trace()
    with closing(_Stream(file)) as stream:
        for event in stream.events(found.about):
            found.take(event)
    rows = found.tables()
    if not rows:
        raise InvalidFile(
            "a trace without kernels and without ranges of stages; profile with ProfilerActivity.CUDA"
        )
    record = RunRecord(
        id=content_id("torch", {"trace.json": file_digest(file)}),
        created=file_time(file),
        source="torch",
        backends=(BACKEND,) if "timings" in rows else (),
        gpu=found.gpu(),
        profiled=True,
        notes=f"torch.profiler, trace {clean(file.name)[:200]}. {FILE_TIME_NOTE}",
    )
    return [ImportedRun(record, file, rows)]


class _Trace:
    """Parts of the events that are kept."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self._names: dict[str, int] = {}
        """Few texts stand in millions of events: each is held once, and its number with what bears it."""
        self._ran = array("q"), array("d"), array("d"), array("q")
        """Runs on the device: name, when it began and for how long (us), its correlation or -1."""
        self._calls: dict[int, int] = {}
        """By correlation the place of a launch in the next."""
        self._called = array("q"), array("d")
        """Threads of launches, and when."""
        self._ranges = Launches()
        """By thread; those of the device under None, those of the host also under "host"."""

    def take(self, event: Mapping[str, Any]) -> None:
        if event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).lower()
        start, took = _number(event.get("ts")), _number(event.get("dur", 0))
        if start is None or took is None or took < 0:
            raise InvalidFile(f"an event '{str(event.get('name'))[:40]}' without a time")
        arguments = event.get("args")
        correlation = arguments.get("correlation") if isinstance(arguments, dict) else None
        if not isinstance(correlation, int) or not 0 <= correlation < 2**62:
            correlation = -1
        thread = f"{event.get('pid')} {event.get('tid')}"[:80]
        name = str(event.get("name", ""))[:_NAME_LIMIT]
        if category in _ON_DEVICE:
            names, starts, times, correlations = self._ran
            names.append(self._number(name))
            starts.append(start)
            times.append(took)
            correlations.append(correlation)
        elif category in _LAUNCHES and correlation >= 0:
            self._calls[correlation] = len(self._called[1])
            self._called[0].append(self._number(thread))
            self._called[1].append(start)
        elif category in _RANGES and (stage := stage_of_range(name[:200])) is not None:
            on_device = category.startswith("gpu")
            for of in (None,) if on_device else (thread, _HOST):
                self._ranges.add_range(of, start * 1e3, (start + took) * 1e3, stage)

    def tables(self) -> dict[str, tuple[Row, ...]]:
        """Rows of kernels by stage, and of the times of the ranges: the device's, else the host's."""
        where = None if None in self._ranges.threads else _HOST
        texts = [clean(text) or "not known" for text in self._names]
        threads = list(self._names)
        for name, start, took, correlation in zip(*self._ran, strict=True):
            thread, moment = where, start
            if (at := self._calls.get(correlation)) is not None:
                thread, moment = threads[self._called[0][at]], self._called[1][at]
            stage = self._ranges.stage_at(thread, moment * 1e3)
            self._ranges.add_kernel(texts[name], took * 1e3, stage)
        return self._ranges.tables(BACKEND, [_HOST], [None])

    def _number(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def gpu(self) -> str | None:
        """The one device of the trace; None where there are several, or none is named."""
        devices = self.about.get("deviceProperties")
        names = {
            str(each["name"])[:200]
            for each in (devices if isinstance(devices, list) else [])
            if isinstance(each, dict) and isinstance(each.get("name"), str)
        }
        return names.pop() if len(names) == 1 else None


def _number(value: object) -> float | None:
    """A time, which some writers print as a text."""
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def _too_long() -> InvalidFile:
    return InvalidFile(
        f"more than {TRACE_LIMIT // MIB:,} MiB unpacked: profile fewer steps, with schedule(active=...)"
    )


class _Stream:
    """A JSON document read piece by piece: its events one by one, other values whole if they are small."""

    def __init__(self, file: Path) -> None:
        try:
            with file.open("rb") as ends:
                packed, size = ends.read(2) == GZIP, ends.seek(0, os.SEEK_END)
                if packed:  # its last four bytes are how much the last part of it is unpacked
                    ends.seek(max(size - 4, 0))
                    size = int.from_bytes(ends.read(4), "little")
            if size > TRACE_LIMIT:  # before all of it is read
                raise _too_long()
            handle = cast(IO[bytes], (gzip.open if packed else Path.open)(file, "rb"))
        except OSError as error:
            raise InvalidFile(f"cannot be read ({error.strerror})") from error
        self._handle, self._read, self._whole = handle, 0, False
        self._decoder, self._json = codecs.getincrementaldecoder("utf-8-sig")("replace"), json.JSONDecoder()
        self._text, self._at = "", 0

    def close(self) -> None:
        self._handle.close()

    def events(self, about: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Each event; the other values of the document go into `about`. Raises InvalidFile."""
        if self._sign() == "[":
            yield from self._listed()
            return
        self._expect("{")
        while self._sign() != "}":
            name = self._value()
            self._expect(":")
            if name == "traceEvents" and self._sign() == "[":
                yield from self._listed()
            else:
                about[str(name)[:100]] = self._value()
            if self._sign() == ",":
                self._at += 1

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        self._expect("[")
        count = 0
        while self._sign() != "]":
            event = self._value()
            count += 1
            if count > EVENT_LIMIT:
                raise InvalidFile(f"more than {EVENT_LIMIT:,} events: profile fewer pages")
            if isinstance(event, dict):
                yield event
            if self._sign() == ",":
                self._at += 1
        self._at += 1

    def _value(self) -> Any:
        self._sign()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
                if end < len(self._text) or self._whole:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._whole:
                    raise InvalidFile(f"not whole, or not JSON ({error.msg})") from error
            except (RecursionError, ValueError) as error:
                raise InvalidFile("nested too deeply, or a number beyond all bounds") from error
            if len(self._text) - self._at > VALUE_LIMIT:
                raise InvalidFile(f"a value of more than {VALUE_LIMIT // MIB} MiB, or not JSON")
            self._more()

    def _sign(self) -> str:
        """The next sign that is no blank, which stays. Raises InvalidFile at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if self._whole:
                raise InvalidFile("not whole: the trace ends in its middle")
            self._more()

    def _expect(self, sign: str) -> None:
        if self._sign() != sign:
            raise InvalidFile(f"not a trace: '{self._sign()}' where '{sign}' belongs")
        self._at += 1

    def _more(self) -> None:
        try:
            content = self._handle.read(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidFile(f"not a whole gzip file ({error})") from error
        self._read += len(content)
        if self._read > TRACE_LIMIT:
            raise _too_long()
        self._whole = not content
        self._text = self._text[self._at :] + self._decoder.decode(content, not content)
        self._at = 0
