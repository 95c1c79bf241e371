"""Places of the project: its checkout, what it writes, the embedded checkpoint."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_RUNS = os.environ.get("DSOCR_RUNS", "")
RUNS_DIRECTORY = Path(_RUNS).absolute() if _RUNS else PROJECT_ROOT / "data" / "runs"
"""Place of run directories, cached results, uploads, rendered pages and the history."""
HISTORY = str(RUNS_DIRECTORY / "history") if _RUNS else "data/runs/history"
"""Place of recorded runs unless a setting says otherwise."""
EMBEDDED_CHECKPOINT = PROJECT_ROOT / "data" / "mini"


def home() -> Path:
    """Name the user's home; one that is not there for a user with neither HOME nor a name."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def cache_directory() -> Path:
    """Name the folder of indexes and compiled kernels: `DSOCR_CACHE`, else `dsocr` in the user's cache."""
    if own := os.environ.get("DSOCR_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "dsocr"


def why_unwritable(folder: Path) -> str | None:
    """Say why nothing can be written in a folder, existing or not; None where a little was."""
    try:
        places = (folder.absolute(), *folder.absolute().parents)
        place = next(each for each in places if os.path.lexists(each))
        with tempfile.TemporaryFile(dir=place) as handle:
            handle.write(bytes(64 * 1024))
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return None


Temporary = partial(tempfile.TemporaryDirectory[str], prefix="dsocr-", ignore_cleanup_errors=True)
"""A temporary directory, whose name ends with what it is for."""
