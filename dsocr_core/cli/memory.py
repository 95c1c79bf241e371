"""A limit on the memory of a step of this process."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

_ROOM = 2**30
"""For threads, their stacks and allocators, which take addresses and hardly any memory."""


@contextlib.contextmanager
def most_memory(mebibytes: int) -> Iterator[None]:
    """Lets this process have at most twice `mebibytes` more than it has, where the system counts it.

    Twice: the work of a database and its answer. What goes beyond is a MemoryError.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):  # no Linux
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + 2 * mebibytes * 2**20 + _ROOM
    allowed = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(most, *allowed) if allowed else most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
