"""A program stopped at any of its writes, by the kernel: killed, on a full disk, or on a read-only one.

    with Faults("history_writes") as faults:
        ended = faults.run("write", root, "kill", at=7)

Each job runs in a process of its own, forked from one that has the imports. Every system call of it that
changes something under `root` is stopped before it happens (seccomp's user notification), in pyarrow's C++ as
in Python, and counted. From number `at` on the fault is there. Linux on x86-64 only; `unavailable` says why
not.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import platform
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from errno import ENOSPC, EROFS
from pathlib import Path
from random import Random
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
Fault = Literal["none", "kill", "full", "read-only"]
DISKS: tuple[Fault, Fault] = ("full", "read-only")
FAULTS: tuple[Fault, ...] = ("kill", *DISKS)
Job = Callable[[Path], None]


@dataclass
class Ended:
    """How a job ended."""

    end: str
    """done, refused (a DsocrError), killed or traceback."""
    text: str = ""
    writes: list[str] = field(default_factory=list)
    """The calls that were to change something, those with the fault included."""


# --- the test's side ----------------------------------------------------------------------------


class Faults:
    """Jobs of a module of tests.support, by the name of their function."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> Faults:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.write_faults", self._module],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, job: str, root: Path, fault: Fault = "none", at: int = 0) -> Ended:
        """Do a job on what lies under `root`, with the fault from its write number `at` (from 0) on."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([job, str(root), fault, at]), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))


def changing(writes: Sequence[str], hidden: tuple[str, ...]) -> list[int]:
    """Numbers before and after each call that changes what a reader finds: names outside of these folders."""
    found: set[int] = set()
    for number, write in enumerate(writes):
        call, _, path = write.partition(" ")
        # Of a rename only the source is told, which may be hidden.
        if call.startswith("rename") or (call in _CHANGE_NAMES and not path.startswith(hidden)):
            found |= {number, number + 1}
    return sorted(found - {len(writes)})


def kinds(writes: Sequence[str]) -> list[int]:
    """Numbers of the first call of each kind: the call, the folder and the kind of file."""
    found: dict[tuple[str, str, str], int] = {}
    for number, write in enumerate(writes):
        call, _, path = write.partition(" ")
        folder = re.sub(r"[.-][0-9a-f]{8,}|\\d+", "", str(Path(path).parent))
        found.setdefault((call, folder, Path(path).suffix), number)
    return list(found.values())


def sample(job: str, number: int, writes: Sequence[str], hidden: tuple[str, ...]) -> list[tuple[Fault, int]]:
    """Faults for the quick tests of job `number`: a kill where what is seen changes, and one kind of disk."""
    disk = DISKS[number % len(DISKS)]
    chosen: list[tuple[Fault, int]] = []
    for fault, points in (("kill", changing(writes, hidden)), (disk, kinds(writes))):
        chosen += [(fault, Random(f"{job} {fault}").choice(points))] if points else []
    return chosen


def unavailable() -> str | None:
    """Why this machine cannot do it; None when it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "numbers of system calls are those of Linux on x86-64"
    child = os.fork()
    if not child:
        try:
            _listener()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return "no seccomp notifications here" if status else None


# --- the system's calls -------------------------------------------------------------------------

_WRITES = {1: "write", 18: "pwrite64", 20: "writev"}
_OF_DESCRIPTORS = _WRITES | {74: "fsync", 75: "fdatasync", 77: "ftruncate", 285: "fallocate", 40: "sendfile"}
_OF_PATHS = {
    2: "open", 85: "creat", 82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 88: "symlink",
}  # fmt: skip
_OF_FOLDERS = {
    257: "openat",
    258: "mkdirat",
    263: "unlinkat",
    264: "renameat",
    316: "renameat2",
    265: "linkat",
}
_NAMES = _OF_DESCRIPTORS | _OF_PATHS | _OF_FOLDERS
_FREES_ROOM = {"ftruncate", "rename", "rmdir", "unlink", "unlinkat", "renameat", "renameat2"}
"""What a full disk lets happen."""
_CHANGE_NAMES = _FREES_ROOM | {"mkdir", "mkdirat", "link", "linkat", "symlink"}
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_AT_FDCWD = -100

_NOTIFICATION = struct.Struct("=QII iIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_libc = ctypes.CDLL(None, use_errno=True)


def _listener() -> int:
    """From now on these calls wait for an answer on this descriptor, also in new threads. Raises OSError."""
    code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]  # the call's number
    for place, number in enumerate(_NAMES):
        code.append(struct.pack("=HBBI", 0x15, len(_NAMES) - place, 0, number))
    code += [struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000), struct.pack("=HBBI", 0x06, 0, 0, 0x7FC00000)]
    program = ctypes.create_string_buffer(b"".join(code))
    header = struct.pack("@HP", len(code), ctypes.addressof(program))
    if _libc.prctl(38, 1, 0, 0, 0):  # no new privileges
        raise OSError(ctypes.get_errno(), "prctl")
    descriptor = int(_libc.syscall(317, 1, 8, header))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return descriptor


class _Watch:
    """Decides on each call of one process."""

    def __init__(self, listener: int, child: int, root: Path, fault: Fault, at: int) -> None:
        self._listener, self._child, self._fault, self._at = listener, child, fault, at
        self._root = f"{root}/"
        self._torn = False
        self.writes: list[str] = []

    def answer(self) -> None:
        """Take one call and let it happen or not."""
        given = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, given)
        except OSError:  # it died in between
            return
        number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(given)
        value, error, flags = self._decided(thread, _NAMES[call], arguments)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, bytearray(_ANSWER.pack(number, value, -error, flags)))

    def _decided(self, thread: int, name: str, arguments: list[int]) -> tuple[int, int, int]:
        path = self._changed(thread, name, arguments)
        if path is None:
            return 0, 0, _CONTINUE
        number = len(self.writes)
        self.writes.append(f"{name} {path.removeprefix(self._root)}")
        if self._fault == "none" or number < self._at:
            return 0, 0, _CONTINUE
        half = self._half(thread, name, arguments) if not self._torn else 0
        if self._fault == "kill":
            os.kill(self._child, signal.SIGKILL)
            return 0, EROFS, 0
        if self._fault == "read-only":
            return 0, EROFS, 0
        if name in _FREES_ROOM or (name in ("open", "openat") and Path(path).exists()):
            return 0, 0, _CONTINUE
        return (half, 0, 0) if half else (0, ENOSPC, 0)

    def _half(self, thread: int, name: str, arguments: list[int]) -> int:
        """A disk takes what it has room for: half of a write is written, once; returns its bytes."""
        self._torn = True
        if self._fault == "read-only" or name != "write" or arguments[2] < 2:
            return 0
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - not a file of a path
            memory.seek(arguments[1])
            content = memory.read(arguments[2] // 2)
        opened = int(_libc.syscall(434, self._child, 0))  # pidfd_open
        try:
            target = int(_libc.syscall(438, opened, arguments[0], 0))  # pidfd_getfd: with its offset
            try:
                return os.write(target, content)
            finally:
                os.close(target)
        finally:
            os.close(opened)

    def _changed(self, thread: int, name: str, arguments: list[int]) -> str | None:
        """What a call would change under the root; None when nothing."""
        if name in ("open", "openat") and not arguments[1 + (name == "openat")] & _FOR_WRITING:
            return None
        if name in _OF_DESCRIPTORS.values():
            path = self._link(thread, f"fd/{arguments[0]}")
        elif name in _OF_PATHS.values():
            path = self._path(thread, _AT_FDCWD, arguments[0])
        else:
            path = self._path(thread, arguments[0], arguments[1])
        return path if f"{path}/".startswith(self._root) else None

    def _path(self, thread: int, folder: int, address: int) -> str:
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
            memory.seek(address)
            name = os.fsdecode(memory.read(4096).partition(b"\0")[0])
        signed = ctypes.c_int(folder & 0xFFFFFFFF).value
        base = self._link(thread, "cwd" if signed == _AT_FDCWD else f"fd/{signed}")
        return os.path.normpath(os.path.join(base, name))  # noqa: PTH118 - text, not a file of ours

    def _link(self, thread: int, name: str) -> str:
        try:
            return os.readlink(f"/proc/{thread}/{name}")  # noqa: PTH115
        except OSError:
            return ""


# --- the jobs' side -----------------------------------------------------------------------------


def _watched(job: Job, root: Path, fault: Fault, at: int) -> Ended:
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        _work(job, root, theirs)
    theirs.close()
    with ours:
        listener = socket.recv_fds(ours, 1, 1)[1][0]
        watch = _Watch(listener, child, root, fault, at)
        said = b""
        poll = select.poll()
        for descriptor in (listener, ours.fileno()):
            poll.register(descriptor, select.POLLIN)
        over = False
        while not over:
            for descriptor, events in poll.poll():
                if descriptor == listener and events & select.POLLIN:
                    watch.answer()
                elif descriptor == ours.fileno():
                    piece = ours.recv(65536)
                    said, over = said + piece, not piece
        os.close(listener)
    os.waitpid(child, 0)
    return Ended(*(json.loads(said) if said else ("killed", "")), watch.writes)


def _work(job: Job, root: Path, channel: socket.socket) -> None:
    """In the child: do the job, say how it ended, and be gone."""
    try:
        tempfile.tempdir = str(root / "temporary")
        socket.send_fds(channel, [b"."], [_listener()])
        said = _outcome(job, root)
        channel.sendall(json.dumps(said).encode())
    finally:
        os._exit(0)


def _outcome(job: Job, root: Path) -> tuple[str, str]:
    from dsocr_core.base.errors import DsocrError

    try:
        job(root)
    except DsocrError as error:
        return "refused", str(error)
    except BaseException:  # noqa: BLE001 - it is what is looked for
        return "traceback", traceback.format_exc()[-3000:]
    return "done", ""


def main() -> None:
    jobs = importlib.import_module(f"tests.support.{sys.argv[1]}")
    for line in sys.stdin:
        job, root, fault, at = json.loads(line)
        ended = _watched(getattr(jobs, job), Path(root), fault, at)
        said: dict[str, Any] = {"end": ended.end, "text": ended.text, "writes": ended.writes}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
