"""torch.profiler: Chrome traces (`export_chrome_trace`, also packed), read event by event.

A kernel belongs to the innermost stage whose `record_function` or NVTX range was open where it was launched;
where the launch is not in the trace, to the one that was open when it began. Names of some writers break the
JSON (backslashes of Windows, quotes, control characters): such an event is mended or, if that fails, left
out, and the run's notes say so.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
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

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles
from dsocr_core.runs.importers.reading import (
    GZIP,
    MIB,
    FileProbe,
    digest,
)
from dsocr_core.runs.importers.stages import Ranges, stage_of_range

TRACE_LIMIT = 1536 * MIB
"""Bytes of a trace, unpacked."""
EVENT_LIMIT, EVENT_CHARACTERS = 8_000_000, 16 * MIB
_BROKEN = MIB
"""Characters behind an event's begin after which it is broken and not only cut by a chunk's end."""
_NAME_LIMIT = 4_000
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime")
_RANGES = ("user_annotation", "gpu_user_annotation", "nvtx", "cpu_op")
_TRACE = re.compile(r'"traceEvents"\s*:|^\s*\[\s*\{\s*"(?:ph|name|cat)"\s*:')
_LIST = re.compile(r'"traceEvents"\s*:\s*\[|^\s*\[')
_GPU = re.compile(r'"deviceProperties"\s*:\s*(?=\[)')
_NEXT = re.compile(r'\}\s*,?\s*(?=\{\s*"(?:ph|name|cat)"\s*:)|\}\s*(?=\]\s*[,}])')
"""Between two events, or after the last."""
_NAME = re.compile(r'("name"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|id|args)"\s*:)', re.DOTALL)
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SIGN = re.compile(r"[^\s,]")
_JSON = json.JSONDecoder(strict=False)
BACKEND, _HOST = "torch", "host"


def is_trace(probe: FileProbe) -> bool:
    return _TRACE.search(probe.text) is not None or (
        probe.text.lstrip().startswith('{"schemaVersion"') or '"deviceProperties"' in probe.text[:2000]
    )


def read_trace(files: RunFiles) -> list[ImportedRun]:
    """The kernels and stages of a trace as a run. Raises InvalidFile."""
    found = _Trace()
    with closing(_Stream(files.place)) as stream:
        for event in stream.events():
            found.take(event)
    rows = found.tables()
    if not rows:
        raise InvalidFile(
            "a trace without kernels and without ranges of stages; profile with ProfilerActivity.CUDA"
        )
    files.digests["trace.json"] = digest(files.place)
    notes = f"torch.profiler, trace {files.name}.{stream.left_out}"
    return [files.profile("torch", notes, rows, gpu=stream.gpu)]


class _Trace:
    """Parts of the events that are kept."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        """Few texts stand in millions of events: each is held once, and its number with what bears it."""
        self._ran = array("q"), array("d"), array("d"), array("q")
        """Runs on the device: name, begin and time (us), correlation or -1."""
        self._called = array("q"), array("d"), array("q")
        """Launches: thread, moment, correlation."""
        self._ranges = Ranges()
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
            _append(self._ran, self._number(name), start, took, correlation)
        elif category in _LAUNCHES and correlation >= 0:
            _append(self._called, self._number(thread), start, correlation)
        elif category in _RANGES and (stage := stage_of_range(name[:200])) is not None:
            for of in (None,) if category.startswith("gpu") else (thread, _HOST):
                self._ranges.add(of, start * 1e3, (start + took) * 1e3, stage)

    def tables(self) -> dict[str, list[Row]]:
        """Rows of kernels by stage, and of the times of the ranges: the device's, else the host's."""
        names, starts, times, correlations = (np.asarray(column) for column in self._ran)
        threads, moments, launches = (np.asarray(column) for column in self._called)
        order = np.argsort(launches, kind="stable")
        at = np.searchsorted(launches[order], correlations, side="right") - 1
        last = order[np.maximum(at, 0)] if len(order) else np.zeros(len(at), int)  # its last launch
        launched = (at >= 0) & (launches[last] == correlations) if len(order) else np.zeros(len(at), bool)
        where = None if None in self._ranges.threads else _HOST
        stages = self._ranges.stages_at(where, starts * 1e3)
        texts = list(self._names)
        for thread in np.unique(threads[last[launched]]):
            of = np.flatnonzero(launched)[threads[last[launched]] == thread]
            stages[of] = self._ranges.stages_at(texts[thread], moments[last[of]] * 1e3)
        cleaned = pd.Series([paired(text) or "not known" for text in texts], dtype=object)
        kernels = pd.DataFrame(
            {"name": cleaned.reindex(names).to_numpy(), "stage": stages, "took": times * 1e3}
        )
        return self._ranges.tables(BACKEND, kernels, [_HOST], self._ranges.took([None]))

    def _number(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))


def _append(columns: tuple[array[Any], ...], *values: float) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _number(value: object) -> float | None:
    """A time, which some writers print as a text."""
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


class _Stream:
    """A trace read piece by piece, its events one by one."""

    def __init__(self, file: Path) -> None:
        self.gpu: str | None = None
        self.left_out = ""
        """A sentence on events that could not be read."""
        self._text, self._at, self._before, self._whole = "", 0, 0, False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        try:
            with file.open("rb") as ends:
                packed, size = ends.read(2) == GZIP, ends.seek(0, os.SEEK_END)
                if packed:  # its last four bytes are how much the last part of it is unpacked
                    ends.seek(max(size - 4, 0))
                    size = int.from_bytes(ends.read(4), "little")
            self._handle = cast(IO[bytes], (gzip.open if packed else Path.open)(file, "rb"))
        except OSError as error:
            raise InvalidFile(f"cannot be read ({error.strerror})") from error
        self._left = TRACE_LIMIT - size  # before all of it is read
        self._check_size()
        self._left = TRACE_LIMIT

    def close(self) -> None:
        self._handle.close()

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Each event. Raises InvalidFile."""
        while (begin := _LIST.search(self._text)) is None:
            if self._whole or len(self._text) > EVENT_CHARACTERS:
                raise InvalidFile("not a trace, or not whole: no list traceEvents")
            self._more()
        self.gpu = _gpu(self._text[: begin.start()])
        self._at = begin.end()
        for count in itertools.count(1):
            while (sign := _SIGN.search(self._text, self._at)) is None:
                if self._whole:
                    raise InvalidFile("not whole: the trace ends in its middle")
                self._more()
            self._at = sign.start()
            if sign[0] == "]":
                return
            if count > EVENT_LIMIT:
                raise InvalidFile(f"more than {EVENT_LIMIT:,} events: profile fewer pages")
            if isinstance(event := self._event(), dict):
                yield event

    def _event(self) -> Any:
        while True:
            try:
                value, self._at = _JSON.raw_decode(self._text, self._at)
                return value
            except json.JSONDecodeError as error:
                if self._whole or len(self._text) - self._at > _BROKEN:
                    return self._mended(error)
            except (RecursionError, ValueError) as error:
                raise InvalidFile("nested too deeply, or a number beyond all bounds") from error
            self._more()

    def _mended(self, error: json.JSONDecodeError) -> Any:
        """An event whose name breaks the JSON; None where it cannot be read and is left out."""
        while (end := _NEXT.search(self._text, self._at)) is None:
            place = f"{self._before + error.pos:,}"
            if self._whole or len(self._text) - self._at > EVENT_CHARACTERS:
                raise InvalidFile(
                    f"not whole, not JSON ({error.msg} at character {place}), or an event of more than "
                    f"{EVENT_CHARACTERS // MIB} MiB"
                )
            self._more()
        broken, place = self._text[self._at : end.start() + 1], f"{self._before + self._at:,}"
        self._at = end.end()
        mended = _NAME.sub(lambda found: found[1] + _escaped(found[2]) + found[3], broken, count=1)
        try:
            return _JSON.decode(_doubled(mended))
        except (ValueError, RecursionError):
            self.left_out = self.left_out or (
                f" Events that are not JSON were left out, the first at character {place} ({error.msg}): a "
                "trace without with_stack has all."
            )
            return None

    def _more(self) -> None:
        try:
            content = self._handle.read(4 * MIB)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidFile(f"not a whole gzip file ({error})") from error
        self._left, self._whole = self._left - len(content), not content
        self._check_size()
        self._before += self._at
        self._text, self._at = self._text[self._at :] + self._decode(content, not content), 0

    def _check_size(self) -> None:
        if self._left < 0:
            self._handle.close()
            limit = f"{TRACE_LIMIT // MIB:,} MiB unpacked"
            raise InvalidFile(f"more than {limit}: profile fewer steps, with schedule(active=...)")


def _doubled(text: str) -> str:
    """A text whose backslashes that escape nothing are two."""
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else "\\\\", text)


def _escaped(name: str) -> str:
    """A name between quotes as JSON has it; what is escaped well already stays."""
    return re.sub(r'(?<!\\)"', lambda found: "\\" + found[0], _doubled(name))


def _gpu(before: str) -> str | None:
    """The one device of the trace; None where there are several, or none is named."""
    try:
        devices, _ = _JSON.raw_decode(before, _GPU.search(before).end())  # type: ignore[union-attr]
        names = {each["name"][:200] for each in devices}
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return names.pop() if len(names) == 1 else None
