"""The environment of processes that a worker starts: without what Dask set for the worker's own sake."""

from __future__ import annotations

import os

import dask
import distributed  # noqa: F401 - its defaults are in Dask's configuration then

_TRIM = "MALLOC_TRIM_THRESHOLD_"


def child_environment() -> dict[str, str]:
    """This process's, without the allocator's threshold where it is Dask's.

    Dask has the allocator of its workers give every free page back at once. An engine takes the same memory
    for each page it reads: with that setting a page cost a third more time (docs/performance-trials.md).
    """
    by_dask = dask.config.get(f"distributed.nanny.pre-spawn-environ.{_TRIM}", None)
    is_dasks = os.environ.get(_TRIM) == str(by_dask)
    return {name: value for name, value in os.environ.items() if name != _TRIM or not is_dasks}
