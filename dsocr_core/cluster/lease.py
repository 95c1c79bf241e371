"""One driver an output: a lock in a directory; a file with beats in an object store, which has no locks."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.reading.records import CancelToken

BEAT_S = 5.0
DEAD_AFTER = 4
"""Beats that a driver misses before it is taken for dead. No clocks are compared."""
FILE = "driver.json"


class OtherDriver(DsocrError):
    """Another driver writes into the output; names it."""


@contextlib.contextmanager
def driving(output: Output, cancel: CancelToken) -> Iterator[Lease]:
    """The right to drive an output, until the block ends. Raises OtherDriver, Cancelled, StorageError."""
    lease, root = Lease(output), output.store.root
    with lease.beating(cancel) if root is None else lease.locked(root):
        yield lease


class Lease:
    """The right to drive an output, for as long as nobody took it over."""

    def __init__(self, output: Output) -> None:
        self._output, self._store = output, output.store
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        self._me = {
            "user": user, "host": socket.gethostname(), "process": os.getpid(), "token": secrets.token_hex(8)
        }  # fmt: skip
        self.replaced = threading.Event()

    def check(self) -> None:
        """Raises OtherDriver where this driver was taken for dead and another one goes on."""
        if self.replaced.is_set():
            raise self._other("has gone on with this run", self._there())

    def content(self, beat: int = 0) -> bytes:
        return json.dumps(self._me | {"beat": beat}).encode()

    def _there(self) -> Mapping[str, Any]:
        with contextlib.suppress(DsocrError):  # it may be written just now
            return self._output.document(FILE) or {}
        return {}

    def _other(self, does: str, there: Mapping[str, Any]) -> OtherDriver:
        who = f"the driver of {there.get('user')} on {there.get('host')}, process {there.get('process')},"
        return OtherDriver(f"{self._store.location}: {who} {does}")

    @contextlib.contextmanager
    def locked(self, root: Path) -> Iterator[None]:
        """In a directory: the system gives the lock back when its process ends, however it does."""
        root.mkdir(parents=True, exist_ok=True)
        with (root / FILE).open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self._other("writes into it; wait for its end, or end it", self._there()) from None
            file.truncate(0)
            file.write(self.content())
            file.flush()
            yield
            file.truncate(0)

    @contextlib.contextmanager
    def beating(self, cancel: CancelToken) -> Iterator[None]:
        """In an object store: a driver that is there is watched; one whose beats stopped is replaced."""
        if not self._store.put_new(FILE, self.content()):
            before = self._there()
            for _ in range(DEAD_AFTER):
                if cancel.wait(BEAT_S):
                    raise Cancelled
                if (now := self._there()) not in ({}, before):
                    raise self._other("writes into it; wait for its end, or end it", now)
            self._store.put(FILE, self.content())
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), daemon=True, name="driver's lease")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if not self.replaced.is_set():
                with contextlib.suppress(DsocrError):
                    self._store.remove(FILE)

    def _beat(self, over: threading.Event) -> None:
        beat = 0
        while not self.replaced.is_set() and not over.wait(BEAT_S):
            beat += 1
            with contextlib.suppress(DsocrError):  # reading and writing of shards say it themselves
                if self._there().get("token") in (None, self._me["token"]):
                    self._store.put(FILE, self.content(beat))
                else:
                    self.replaced.set()
