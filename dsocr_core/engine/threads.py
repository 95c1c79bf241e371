"""Waiting of CPU threads. Call before torch is imported; imports nothing heavy itself."""

import os


def wait_politely() -> None:
    """Let OpenMP threads sleep instead of spin while they wait, unless the user chose otherwise.

    Spinning beside a browser made a decoded token take 100 ms instead of 6. MKL keeps its number of threads,
    in the worker too: a product summed by fewer has other bits.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
