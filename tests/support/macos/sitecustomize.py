"""Takes from a Python on Linux what macOS does not have, at its start with this folder in PYTHONPATH."""

import builtins
import fcntl
import io
import multiprocessing
import os
import resource
import sys
from typing import Any

MISSING = {
    os: ("memfd_", "MFD_", "sched_", "posix_fadvise", "pidfd_", "eventfd", "splice", "copy_file_range"),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_", "F_OFD_"), resource: ("prlimit",),
}  # fmt: skip
"""Beginnings of names."""
for module, prefixes in MISSING.items():
    for name in [name for name in dir(module) if name.startswith(prefixes)]:
        delattr(module, name)


def without_proc(function: Any) -> Any:
    def call(path: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(("/proc", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return function(path, *rest, **named)

    return call


FILES = ("open", "stat", "lstat", "listdir", "scandir", "readlink")
for module, names in {builtins: ("open",), io: ("open",), os: FILES}.items():
    for name in names:
        setattr(module, name, without_proc(getattr(module, name)))

_setrlimit = resource.setrlimit


def setrlimit(limit: int, limits: tuple[int, int]) -> None:
    if limit == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    _setrlimit(limit, limits)


resource.setrlimit = setrlimit
multiprocessing.set_start_method("spawn")
sys.modules["triton"] = sys.modules["nvtx"] = None  # type: ignore[assignment]
