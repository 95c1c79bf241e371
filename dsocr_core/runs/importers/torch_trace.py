"""torch.profiler: Chrome traces (`export_chrome_trace`, also packed), read event by event.

A kernel belongs to the innermost stage whose `record_function` or NVTX range was open where it was launched;
where the launch is not in the trace, to the one that was open when it began. Names of some writers break the
JSON (backslashes of Windows, quotes): such an event is left out, and the run's notes say where.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from array import array
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.runs.importers import profiles
from dsocr_core.runs.importers.imported import MIB, ImportedRun, Row, RunFiles, digest, opened

TRACE_LIMIT = 1536 * MIB
"""Bytes of a trace, unpacked."""
EVENT_LIMIT, EVENT_CHARACTERS = 8_000_000, 16 * MIB
_BROKEN = MIB
"""Characters behind an event's begin after which it is broken and not only cut by a piece's end."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "driver")
_RANGES = ("user_annotation", "gpu_user_annotation", "nvtx", "cpu_op")
TRACE = re.compile(
    r'"(?:traceEvents|deviceProperties)"\s*:|^\s*\[\s*\{\s*"(?:ph|name|cat)"\s*:|^\s*\{"schemaVersion"'
)
"""Signs of a trace in its begin."""
_LIST = re.compile(r'"traceEvents"\s*:\s*\[|^\s*\[')
_DEVICES = re.compile(r'"deviceProperties"\s*:\s*\[([^]]*)')
_NEXT = re.compile(r'\}\s*,?\s*(?=\{\s*"(?:ph|name|cat)"\s*:)|\}\s*(?=\]\s*[,}])')
"""Between two events, or after the last."""
_SIGN = re.compile(r"[^\s,]")
_JSON = json.JSONDecoder(strict=False)
_HOST, _DEVICE = -1, -2  # threads that stand for all of the host and of the device


def read_trace(files: RunFiles) -> list[ImportedRun]:
    """The kernels and stages of a trace as a run. Raises InvalidFile."""
    with opened(files.place) as handle:
        stream = _Stream(handle)
        rows = _tables(stream)
    if not any(rows.values()):
        raise InvalidFile(
            "a trace without kernels and without ranges of stages; profile with ProfilerActivity.CUDA"
        )
    files.digests["trace.json"] = digest(files.place)
    what = "torch.profiler, trace"
    return profiles.profile_run(files, "torch", what, rows, stream.left_out, gpu=stream.gpu)


def _tables(stream: _Stream) -> dict[str, list[Row]]:
    """Rows of kernels by stage, and of the times of the ranges: the device's, else the host's."""
    # Numbers lie in flat arrays: there may be millions of events. Few texts stand in all, each has a number.
    numbers: dict[str, int] = {}
    ran, called = array("d"), array("d")
    open_ranges: list[tuple[int, float, float, str]] = []
    for event in stream.events():
        if event.get("ph") != "X":
            continue
        name, category = str(event.get("name", ""))[: profiles.NAME_LIMIT], str(event.get("cat", "")).lower()
        try:
            start, took = float(event["ts"]), float(event.get("dur", 0))
        except (LookupError, TypeError, ValueError, OverflowError):
            start = took = math.nan
        if not (math.isfinite(start) and 0 <= took < math.inf):
            raise InvalidFile(f"an event '{name[:40]}' without a time")
        arguments = event.get("args")
        correlation = arguments.get("correlation") if isinstance(arguments, dict) else None
        if not isinstance(correlation, int) or not 0 <= correlation < 2**53:
            correlation = -1
        thread = f"{event.get('pid')} {event.get('tid')}"[:80]
        if category in _ON_DEVICE:
            ran.extend((numbers.setdefault(name, len(numbers)), start * 1e3, took * 1e3, correlation))
        elif category in _LAUNCHES and correlation >= 0:
            called.extend((numbers.setdefault(thread, len(numbers)), start * 1e3, correlation))
        elif category in _RANGES and (stage := profiles.stage_of_range(name[:200])) is not None:
            of_host = (numbers.setdefault(thread, len(numbers)), _HOST)
            for of in (_DEVICE,) if category.startswith("gpu") else of_host:
                open_ranges.append((of, start * 1e3, (start + took) * 1e3, stage.value))
    ranges = pd.DataFrame(open_ranges, columns=[*profiles.RANGE])
    host, device = (ranges[ranges["thread"] == thread] for thread in (_HOST, _DEVICE))
    calls = pd.DataFrame(np.reshape(called, (-1, 3)), columns=["thread", "moment", "correlation"])
    work = pd.DataFrame(np.reshape(ran, (-1, 4)), columns=["name", "start", "took", "correlation"])
    work = work.merge(calls.drop_duplicates("correlation", keep="last"), on="correlation", how="left")
    work["thread"] = work["thread"].fillna(_HOST if device.empty else _DEVICE).astype(int)
    work["moment"] = work["moment"].fillna(work["start"])
    work["stage"], _ = profiles.by_stage(work.assign(end=work["start"] + work["took"]), ranges)
    names = np.array([without_surrogates(text) or "not known" for text in numbers], object)
    work["name"] = names[work["name"].astype(int)]
    on_device = (device["end"] - device["start"]).groupby(device["stage"], sort=False)
    return profiles.profile_tables("torch", work, host, {stage: of.to_list() for stage, of in on_device})


class _Stream:
    """The events of a trace, one by one."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.gpu: str | None = None
        self.left_out = ""
        """A sentence on events that could not be read."""
        self._handle = handle
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text, self._at, self._before = "", 0, 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Each event. Raises InvalidFile."""
        begin = self._found(_LIST, "not a trace, or not whole: no list traceEvents")
        if (devices := _DEVICES.search(self._text, 0, begin.start())) is not None:
            names = {*re.findall(r'"name"\s*:\s*"([^"\\]{1,200})"', devices[1])}
            self.gpu = names.pop() if len(names) == 1 else None  # of several it is not known which
        self._at = begin.end()
        for _ in range(EVENT_LIMIT):
            sign = self._found(_SIGN, "not whole: the trace ends in its middle")
            self._at = sign.start()
            if sign[0] == "]":
                return
            if isinstance(event := self._event(), dict):
                yield event
        raise InvalidFile(f"more than {EVENT_LIMIT:,} events: profile fewer pages")

    def _found(self, pattern: re.Pattern[str], why: str) -> re.Match[str]:
        """The next match. Raises InvalidFile with this reason."""
        while (match := pattern.search(self._text, self._at)) is None:
            if not self._more():
                raise InvalidFile(why)
        return match

    def _more(self) -> bool:
        """Read on, what is over forgotten; False at the end, and where an event is too long."""
        is_long = len(self._text) - self._at > EVENT_CHARACTERS
        piece = "" if is_long else self._decode(self._handle.read(4 * MIB))
        if self._handle.tell() > TRACE_LIMIT:
            most = f"{TRACE_LIMIT // MIB:,} MiB unpacked"
            raise InvalidFile(f"more than {most}: profile fewer steps, with schedule(active=...)")
        self._before += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _event(self) -> Any:
        """The value that begins here; None where its name breaks the JSON. Raises InvalidFile."""
        while True:
            try:
                value, self._at = _JSON.raw_decode(self._text, self._at)
                return value
            except json.JSONDecodeError as error:
                if len(self._text) - self._at <= _BROKEN and self._more():
                    continue
                place = f"at character {self._before + self._at:,} ({error.msg})"
                most = f"{EVENT_CHARACTERS // MIB} MiB"
                why = f"not whole, not JSON, or an event of more than {most}, {place}"
                self._at = self._found(_NEXT, why).end()
                said = f"Events that are not JSON were left out, the first {place}"
                self.left_out = self.left_out or f"{said}: a trace without with_stack has all."
                return None
            except (RecursionError, ValueError) as error:
                raise InvalidFile("nested too deeply, or a number beyond all bounds") from error
