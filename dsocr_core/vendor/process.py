"""The caller's end of the worker: start, send, receive, kill."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from dsocr_core.vendor.protocol import MAX_LINE_BYTES, Message, ProtocolError, decode, encode

STDERR_TAIL_BYTES = 16 * 1024
PIPE_BYTES = 64 * 1024
"""What a pipe holds at most."""
_ROOT = Path(__file__).parents[2]


class WorkerGone(Exception):
    """The worker has ended; says how."""


class WorkerProcess:
    """A started worker. Raises OSError when the interpreter cannot be run.

    It dies with its caller: when the pipe to its stdin closes, it ends itself.
    """

    def __init__(self, interpreter: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dsocr-vendor-", ignore_cleanup_errors=True)
        self.files = Path(self._directory.name) / "files"
        """Where the vendor's files of a page may go; removed with the worker."""
        self._process = subprocess.Popen(
            [interpreter, "-m", "dsocr_core.vendor.worker", self._directory.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=_environment(Path(self._directory.name)), start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._errors = self._process.stdin, self._process.stderr
        self._messages: queue.SimpleQueue[Message | ProtocolError | None] = queue.SimpleQueue()
        self._stderr = bytearray()
        self._taking = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read_messages, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._drain_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr_tail(self) -> str:
        """The end of what was printed until now: an answer may overtake what was printed before it."""
        self._take_stderr()
        with self._taking:
            return bytes(self._stderr).decode("utf-8", "replace")

    def send(self, message: Message) -> None:
        try:
            self._stdin.write(encode(message))
            self._stdin.flush()
        except OSError as error:
            raise WorkerGone(self._how_it_ended()) from error

    def receive(self, timeout_s: float) -> Message | None:
        """The next message, None when none came in time. Raises WorkerGone or ProtocolError."""
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if message is None:
            self._messages.put(None)
            raise WorkerGone(self._how_it_ended())
        if isinstance(message, ProtocolError):
            raise message
        return message

    def kill(self) -> None:
        """End the worker and its children at once, and wait until all is cleaned up. May be repeated."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._directory.cleanup()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        self._threads[1].join(timeout=5)  # so that the last output is in the tail
        if code >= 0:
            return f"exit code {code}"
        hint = "; the system kills so when memory runs out" if -code == signal.SIGKILL else ""
        return f"signal {-code}{hint}"

    def _read_messages(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                try:
                    self._messages.put(decode(line))
                except ProtocolError as error:
                    self._messages.put(error)
                    break
        self._messages.put(None)

    def _drain_stderr(self) -> None:
        there = select.poll()
        there.register(self._errors, select.POLLIN)
        while there.poll() and self._take_stderr():
            pass
        with self._taking:
            self._errors.close()

    def _take_stderr(self) -> bool:
        """Read what is in the pipe without waiting for more; False at its end."""
        with self._taking:
            if self._errors.closed:
                return False
            there = select.poll()
            there.register(self._errors, select.POLLIN)
            if not there.poll(0):
                return True
            chunk = os.read(self._errors.fileno(), PIPE_BYTES)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]
            return bool(chunk)


def _environment(directory: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return {
        # Threads that spin while they wait make a page 10 to 30 times slower when the cores are shared
        # with another busy process, and gain nothing measurable when they are not.
        "OMP_WAIT_POLICY": "PASSIVE",
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        # Where transformers copies the checkpoint's code: one directory a worker, so that two checkpoints
        # with the same directory name never meet.
        "HF_MODULES_CACHE": str(directory / "modules"),
        # A config may name code in somebody's repository: only the allowed directory's code runs.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
