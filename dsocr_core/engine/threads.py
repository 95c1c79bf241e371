"""How CPU threads wait for one another. Imports nothing heavy itself."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_S = 0.0005
"""Longest wait of the thread that loads a model or queues work for one that opens or records pages."""


def wait_politely() -> None:
    """Let waiting OpenMP threads sleep: with other programs running, spinning takes 16 times as long.

    Call it before torch is imported. MKL keeps its number of threads, in the worker too: fewer would sum in
    another order.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")


@contextmanager
def quick_switches() -> Iterator[None]:
    """Within the block, unless it is so already, let a thread wait for Python's lock a tenth as long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_S))
    try:
        yield
    finally:
        if before > SWITCH_S:  # who came later than another leaves nothing of its own behind
            sys.setswitchinterval(before)
