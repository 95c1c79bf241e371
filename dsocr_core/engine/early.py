"""Early start of the fast engine's GPU and Triton work, while torch is still being imported."""

import ctypes
import threading
from contextlib import suppress


def begin_early(device: str) -> None:
    """Begin on threads, which leave the interpreter to others; what is missing here is said later."""
    if device != "cpu":
        for begin in (lambda: _make_context(int(device.partition(":")[2] or 0)), _hash_triton):
            threading.Thread(target=begin, name="early", daemon=True).start()


def _make_context(ordinal: int) -> None:
    """Make the device's primary context, which torch takes as it finds it."""
    with suppress(OSError):
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)


def _hash_triton() -> None:
    """Hash Triton's files, half a gigabyte: the name of every compiled kernel has the hash."""
    with suppress(ImportError):
        from triton.runtime.cache import triton_key

        triton_key()
