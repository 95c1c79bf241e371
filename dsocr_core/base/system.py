"""Differences between systems: memory that processes share, and limits of a process.

Linux has all of it. macOS has no sealed memory, no /proc and no limit on memory: there pixels are copied, and
`unbounded` names what has no limit. Windows has none of it; WSL does.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec


def require_posix() -> None:
    """Leave with one line on a system without POSIX, where the imports that follow would fail."""
    if find_spec("fcntl") is None:
        raise SystemExit("error: dsocr runs on Linux and macOS; on Windows, install and start it in WSL")


def unbounded() -> list[str]:
    """Name what has no limit on this system."""
    if memory_of() is None:
        return ["memory of opening a page", "memory of SQL", "memory of a cluster's readers"]
    return []


# --- memory that two processes share --------------------------------------------------------------


def can_seal() -> bool:
    """Tell whether the size of shared memory can be fixed: what shrinks ends a process that has it mapped."""
    return hasattr(os, "memfd_create")


def new_memory() -> int:
    """A descriptor of shared memory, of no bytes yet."""
    if can_seal():
        return os.memfd_create("dsocr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def first_bytes(descriptor: int, count: int, content: bool = True) -> mmap.mmap | bytes:
    """The first bytes of shared memory: mapped with its size sealed, else a copy.

    With `content` what it holds is sealed, too. Raises OSError or ValueError for memory that is shorter, or
    that another process may still write.
    """
    if not can_seal():
        copy = os.pread(descriptor, count, 0)
        if len(copy) < count:
            raise ValueError("fewer bytes")
        return copy
    import fcntl

    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | (fcntl.F_SEAL_WRITE if content else 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    # Filled in one call instead of a fault every few pages, where it was written already.
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if content else 0)
    return mmap.mmap(descriptor, count, flags, mmap.PROT_READ)


class SharedMemory:
    """Memory of a fixed size, for another process to write and this one to read."""

    def __init__(self, size: int) -> None:
        self.descriptor = new_memory()
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, size)  # takes no memory before it is written
        self._mapped = first_bytes(self.descriptor, size, content=False) if can_seal() else None

    def first(self, count: int) -> mmap.mmap | bytes:
        """Contents of the first bytes, at least."""
        return self._mapped or first_bytes(self.descriptor, count)


def receive(channel: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Bytes of a socket, and the descriptors that came with them, closed in programs that are started.

    No bytes mean its end.
    """
    content, descriptors, *_ = socket.recv_fds(channel, most, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return content, descriptors


# --- what a process takes, and may take -----------------------------------------------------------


def memory_of(process: int | str = "self") -> tuple[int, int] | None:
    """Bytes of a process's addresses and of its resident memory; None where that is not known."""
    try:
        handle = os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            pages = os.read(handle, 100).split()
        finally:
            os.close(handle)
        size = mmap.PAGESIZE
        return int(pages[0]) * size, int(pages[1]) * size
    except (OSError, ValueError, IndexError):
        return None


def limit_cpu(seconds: int) -> None:
    """Let this process compute at most that long in all."""
    import resource

    _at_most(resource.RLIMIT_CPU, seconds)


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let this process have so many more bytes of addresses for a block, where the system counts them.

    What goes beyond is a MemoryError.
    """
    import resource

    before, used = resource.getrlimit(resource.RLIMIT_AS), memory_of()
    if used is None:
        yield
        return
    with suppress(OSError, ValueError):  # a system that has the limit's name alone
        _at_most(resource.RLIMIT_AS, used[0] + more, before[0])
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _at_most(limit: int, *amounts: int) -> None:
    """Set a limit to the least of these and the machine's own (`ulimit -v`)."""
    import resource

    hard = resource.getrlimit(limit)[1]
    least = min(each for each in (*amounts, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(limit, (least, hard))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
