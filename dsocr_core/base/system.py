"""Differences between systems: memory that processes share, and limits; macOS has no limit on memory."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

if find_spec("fcntl") is not None:
    import fcntl
    import resource


def require_posix() -> None:
    """Leave with one line on a system without POSIX, where the imports that follow would fail."""
    if find_spec("fcntl") is None:
        raise SystemExit("error: dsocr runs on Linux and macOS; on Windows, install and start it in WSL")


def memory_file() -> IO[bytes]:
    """A file in memory; a temporary one where the system has none, as macOS."""
    if not hasattr(os, "memfd_create"):
        return TemporaryFile()
    return os.fdopen(os.memfd_create("dsocr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b")


class SharedMemory:
    """Memory of a fixed size, for another process to write and this one to read; `mapped` where sealed."""

    def __init__(self, size: int) -> None:
        file = memory_file()
        weakref.finalize(self, file.close)
        self.size, self.descriptor = size, file.fileno()
        os.ftruncate(self.descriptor, size)  # takes no memory before it is written
        self.mapped: mmap.mmap | None = None
        with suppress(OSError, AttributeError):  # of `ulimit -v`, or a system without seals
            mapped = mmap.mmap(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self.mapped = mapped  # sealed: what its writer cut off would end this process as it reads

    def give_back(self, beyond: int) -> None:
        """Give what lies beyond that many bytes back to the system, if it takes it. It is zeros then."""
        with suppress(OSError):
            if self.mapped is None:
                os.ftruncate(self.descriptor, beyond)
                os.ftruncate(self.descriptor, self.size)
            elif beyond < self.size:
                self.mapped.madvise(mmap.MADV_REMOVE, beyond, self.size - beyond)


def memory_of(process: int | str = "self") -> tuple[int, int] | None:
    """Bytes of a process's addresses and of its resident memory; None where that is not known."""
    try:
        addresses, resident, *_ = Path(f"/proc/{process}/statm").read_bytes().split()
        return int(addresses) * mmap.PAGESIZE, int(resident) * mmap.PAGESIZE
    except (OSError, ValueError):
        return None


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let this process have that many more bytes of addresses for a block; beyond is a MemoryError."""
    before, used = resource.getrlimit(resource.RLIMIT_AS), memory_of()
    if used is not None:
        limit_to(resource.RLIMIT_AS, used[0] + more)
    try:
        yield
    finally:
        if used is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)


def limit_to(limit: int, amount: int) -> None:
    """Lower a limit of this process to this; one that is less stays (`ulimit -v`)."""
    limits = resource.getrlimit(limit)
    least = min(each for each in (amount, *limits) if each != resource.RLIM_INFINITY)
    resource.setrlimit(limit, (least, limits[1]))
