"""One driver at a time on an output, wherever it lies: the second is refused, with the first one's name.

    drivers/000001.json   who drives; written anew every few seconds, removed at the end

The highest number counts, and of several who claim the next one wins, so a driver that was taken for dead
sees that it has been replaced. No clocks are compared: a driver of another machine is dead when it writes
nothing for some of its own beats; one of this machine is asked for by its process.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.storage.store import StorageError

BEAT_S = 5.0
DEAD_AFTER = 4
"""Beats without a word."""
_FOLDER = "drivers"


class OtherDriver(DsocrError):
    """Another driver writes into the output; names it."""


class Lease:
    """The right to drive an output, once it is taken and until this is closed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._me = _this_process()
        self._over, self._replaced = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="driver's lease")
        self._number = 0

    def take(self, cancel: CancelToken) -> Lease:
        """May be tried again. Raises OtherDriver, Cancelled, StorageError."""
        while True:
            number = self._newest()
            there = self._there(number) if number else None
            if there is not None and there.get("token") == self._me["token"]:
                break  # an earlier try whose answer was lost
            if there is not None and self._lives(number, there, cancel):
                where = self._output.store.location
                raise OtherDriver(f"{where}: {_name(there)} writes into it; wait for its end, or end it")
            self._number = number + 1
            if self._output.store.put_new(_file(self._number), self._content()):
                break
        with contextlib.suppress(StorageError):
            for number in self._numbers():  # of the dead, also of those that were killed here
                if number < self._number:
                    self._output.store.remove(_file(number))
        self._thread.start()
        return self

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(StorageError):
            self._output.store.remove(_file(self._number))

    def check(self) -> None:
        """Raises OtherDriver where this driver was taken for dead and another one goes on."""
        if self._replaced.is_set():
            there = self._there(self._newest()) or {}
            raise OtherDriver(f"{self._output.store.location}: {_name(there)} has gone on with this run")

    def _beat(self) -> None:
        beats = 0
        while not self._over.wait(BEAT_S):
            beats += 1
            with contextlib.suppress(StorageError):  # it says so itself when it is needed
                if self._newest() > self._number:
                    self._replaced.set()
                    return
                self._output.store.put(_file(self._number), self._content(beats))

    def _content(self, beats: int = 0) -> bytes:
        return json.dumps(self._me | {"beat": beats}).encode()

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        names = [name.partition(".")[0] for name in self._output.store.names(_FOLDER)]
        return [int(name) for name in names if name.isdecimal()]

    def _there(self, number: int) -> dict[str, Any] | None:
        return self._output.document(_file(number))

    def _lives(self, number: int, there: Mapping[str, Any], cancel: CancelToken) -> bool:
        """Tell whether who wrote that does so still. Waits for its next beats where only they can say."""
        if self._me["machine"] and there.get("machine") == self._me["machine"]:
            return _started(there.get("process")) == there.get("started")
        for _ in range(DEAD_AFTER):
            if cancel.wait(BEAT_S):
                raise Cancelled
            if self._newest() != number or self._there(number) != there:
                return self._newest() >= number
        return False


def _file(number: int) -> str:
    return f"{_FOLDER}/{number:06d}.json"


def _name(driver: Mapping[str, Any]) -> str:
    return f"the driver of {driver.get('user')} on {driver.get('host')}, process {driver.get('process')},"


def _this_process() -> dict[str, Any]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return {
        "user": user, "host": socket.gethostname(), "process": os.getpid(), "started": _started(os.getpid()),
        "machine": _machine(), "token": secrets.token_hex(8),
    }  # fmt: skip


def _machine() -> str:
    """Name the machine within which process numbers mean the same; empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(process: object) -> str | None:
    """Tell when a process of this machine began, in the system's own ticks; None where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
