"""Which recorded values of runs count as different: where a run was kept says nothing of how it was made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

NOT_OF_THE_RUN = frozenset({("settings", "history")})
"""(section, name) of values that say where a run was recorded."""
_PATHS = frozenset({("settings", "checkpoint")})
"""Values that are paths: a clone of the project lies elsewhere on each machine."""


def differ(section: str, name: str, values: Iterable[str | None]) -> bool:
    """Whether runs differ in a value; None is a run that has no such value, and differs from one that has."""
    if (section, name) in NOT_OF_THE_RUN:
        return False
    found = set(values)
    if (section, name) in _PATHS and None not in found:
        return not _one_path([value for value in found if value is not None])
    return len(found) > 1


def _one_path(texts: list[str]) -> bool:
    """Whether paths can be one: an absolute one and its end count as the same."""
    parts = sorted((PurePosixPath(text.replace("\\", "/")).parts for text in texts), key=len)
    return all(len(parts[0]) > 0 and longer[-len(parts[0]) :] == parts[0] for longer in parts)
