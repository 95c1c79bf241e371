"""Waiting of CPU threads. Call before torch is imported; imports nothing heavy itself."""

import os


def wait_politely() -> None:
    """Let OpenMP threads sleep while they wait: spinning beside a browser takes 16 times as long.

    MKL keeps its number of threads, in the worker too: a product summed by fewer has other bits.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
