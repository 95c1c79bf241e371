"""Waiting of CPU threads. Call before torch is imported; imports nothing heavy itself."""

import os


def wait_politely() -> None:
    """Let OpenMP threads sleep instead of spin while they wait, unless the user chose otherwise.

    Two spinning threads on two cores that also serve a browser made a decoded token take 100 ms instead
    of 6; sleeping costs a few microseconds a parallel region.

    MKL may take fewer threads than it was given where it sees fit, and a product summed by fewer threads has
    other bits: it keeps their number, in the worker too, which inherits this.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
