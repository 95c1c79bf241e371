"""A child process: started, spoken to line by line, ended with all that it has started, and how it ended."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.sanitise import visible

MOST_LINE_BYTES, _TAIL_BYTES = 16 * 1024 * 1024, 16 * 1024
_LEAVING_S = 5.0


class ChildGone(Exception):
    """The child has ended; says how."""


def module_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Add the project's modules to an environment, else to that of this process."""
    own = os.environ if environment is None else environment
    path = os.pathsep.join(filter(None, (str(PROJECT_ROOT), own.get("PYTHONPATH"))))
    # Python would search the current folder first, which may hold another `json.py`.
    return {**own, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


class Child:
    """A started process in a session of its own; with `talks` lines go in and out. Raises OSError."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], talks: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        channel = subprocess.PIPE if talks else subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=channel, stdout=channel, stderr=subprocess.PIPE, env=environment,
            pass_fds=pass_fds, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._sending, self._killed, self._tail = threading.Lock(), False, b""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._drain, self._hear)]
        for thread in self._threads:
            thread.start()

    @property
    def returncode(self) -> int | None:
        """Exit code, below 0 a signal; None while it runs."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def send(self, lines: bytes) -> None:
        """Write to stdin. Raises ChildGone."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with self._sending:
                stdin.write(lines)
                stdin.flush()
        except (OSError, ValueError) as error:
            raise ChildGone(self.how_it_ended()) from error

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """The next line, None when none came in time; without a line end it is the last. Raises ChildGone."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
            raise ChildGone(self.how_it_ended())
        return line

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def kill(self) -> None:
        """Kill the process and all in its group at once."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close its pipes. May be repeated."""
        self.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(1.0)  # what left its group may hold a pipe for ever
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError), self._sending:
                self._process.stdin.close()

    def how_it_ended(self) -> str:
        """In words: "ended with exit code 3"."""
        if not self.wait(_LEAVING_S):
            return "closed its channel"
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
        by_system = code == -signal.SIGKILL and not self._killed
        return f"ended by {name}{'; the system kills so when memory runs out' * by_system}"

    @property
    def stderr_tail(self) -> str:
        """The end of what was printed until now."""
        self._threads[0].join(0.1 if self.alive else 1.0)  # an answer may overtake what was printed before it
        return self._tail.decode("utf-8", "replace")

    def last_line(self, most: int) -> str:
        """Its last line with words, nothing in it to steer a terminal."""
        lines = (line.strip() for line in reversed(self.stderr_tail.splitlines()))
        return visible(next(filter(None, lines), ""))[-most:]

    def _hear(self) -> None:
        if (stream := self._process.stdout) is not None:
            with stream:
                while line := stream.readline(MOST_LINE_BYTES + 1):
                    self._lines.put(line)
                    if not line.endswith(b"\n"):
                        break
        self._lines.put(None)

    def _drain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while chunk := os.read(stream.fileno(), _TAIL_BYTES):
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
