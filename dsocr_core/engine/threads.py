"""How CPU threads wait. Call before torch is imported; imports nothing heavy itself."""

import os


def wait_politely() -> None:
    """Let waiting OpenMP threads sleep: with other programs running, spinning takes 16 times as long.

    MKL keeps its number of threads, in the worker too: fewer threads would sum in another order.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
