"""Differences between systems: memory that processes share, and limits of a process.

Linux has all of it. macOS has no sealed memory, no /proc and no limit on memory: there pixels are copied, and
`unbounded` names what has no limit. Windows has none of it; WSL does.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path


def require_posix() -> None:
    """Leave with one line on a system without POSIX, where the imports that follow would fail."""
    if find_spec("fcntl") is None:
        raise SystemExit("error: dsocr runs on Linux and macOS; on Windows, install and start it in WSL")


def unbounded() -> list[str]:
    """Name what has no limit on this system."""
    names = ["memory of opening a page", "memory of SQL", "memory of a cluster's readers"]
    return names if memory_of() is None else []


class SharedMemory:
    """Memory of a fixed size, for another process to write and this one to read."""

    def __init__(self, size: int) -> None:
        self.size, self._mapped = size, None
        sealed = hasattr(os, "memfd_create")
        if sealed:
            self.descriptor = os.memfd_create("dsocr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, size)  # takes no memory before it is written
        if sealed:
            import fcntl

            # What shrinks ends a process that has it mapped.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._mapped = mmap.mmap(self.descriptor, size)

    def first(self, count: int) -> mmap.mmap | bytes:
        """Contents of the first bytes, at least: a copy where the size cannot be sealed.

        Raises ValueError for memory that is shorter.
        """
        content = self._mapped or os.pread(self.descriptor, count, 0)
        if len(content) < count:
            raise ValueError("fewer bytes")
        return content

    def give_back(self, beyond: int) -> None:
        """Give what lies beyond that many bytes back to the system; it reads as zeros then."""
        if self._mapped is None:
            os.ftruncate(self.descriptor, beyond)
            os.ftruncate(self.descriptor, self.size)
        elif self.size > (beyond := -(-beyond // mmap.PAGESIZE) * mmap.PAGESIZE):
            self._mapped.madvise(mmap.MADV_REMOVE, beyond, self.size - beyond)


def memory_of(process: int | str = "self") -> tuple[int, int] | None:
    """Bytes of a process's addresses and of its resident memory; None where that is not known."""
    try:
        addresses, resident, *_ = Path(f"/proc/{process}/statm").read_bytes().split()
        return int(addresses) * mmap.PAGESIZE, int(resident) * mmap.PAGESIZE
    except (OSError, ValueError):
        return None


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let this process have that many more bytes of addresses for a block, where the system counts them.

    What goes beyond is a MemoryError.
    """
    import resource

    before, used = resource.getrlimit(resource.RLIMIT_AS), memory_of()
    try:
        if used is not None:
            with suppress(OSError, ValueError):  # a system that has the limit's name alone
                _at_most(resource.RLIMIT_AS, used[0] + more, before[0])
        yield
    finally:
        if used is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)


def limit_cpu(seconds: int) -> None:
    """Let this process compute at most that long in all."""
    import resource

    _at_most(resource.RLIMIT_CPU, seconds)


def _at_most(limit: int, *amounts: int) -> None:
    """Set a limit to the least of these and the machine's own (`ulimit -v`)."""
    import resource

    hard = resource.getrlimit(limit)[1]
    least = min(each for each in (*amounts, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(limit, (least, hard))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
