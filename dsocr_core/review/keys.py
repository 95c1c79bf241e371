"""Names of a review, in addresses and in the rows of its verdicts."""

from __future__ import annotations

import re

from dsocr_core.base.errors import DsocrError


class ReviewError(DsocrError):
    """A review that cannot be opened, or a page it does not have; says what to give instead."""


_PART = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?::([A-Za-z0-9._-]{1,100}))?")


def review_key(
    run_a: str, run_b: str | None = None, backend_a: str | None = None, backend_b: str | None = None
) -> str:
    """The key of a review, for addresses: `RUN`, or `RUN_A~RUN_B`; each with `:BACKEND` if named."""
    a, b = (
        f"{run}:{backend}" if backend else run
        for run, backend in ((run_a, backend_a), (run_b or run_a, backend_b))
    )
    return a if a == b == run_a else f"{a}~{b}"


def parse_key(key: str) -> tuple[str, str | None, str | None, str | None]:
    """(run_a, run_b, backend_a, backend_b) of a key. Raises ReviewError on anything else."""
    parts = [_PART.fullmatch(part) for part in key.split("~")]
    if len(parts) not in (1, 2) or not all(parts):
        raise ReviewError(f"'{key[:120]}' names no review: give the id of a run, or two with ~ between them")
    (run_a, backend_a), (run_b, backend_b) = ((part[1], part[2]) for part in (parts[0], parts[-1]) if part)
    return run_a, run_b if len(parts) == 2 else None, backend_a, backend_b if len(parts) == 2 else None
