"""Places of the project: its checkout, what it writes, the embedded checkpoint."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_RUNS = os.environ.get("DSOCR_RUNS", "")
RUNS_DIRECTORY = Path(_RUNS).absolute() if _RUNS else PROJECT_ROOT / "data" / "runs"
"""Place of run directories, cached results, uploads, rendered pages and the history."""
HISTORY = str(RUNS_DIRECTORY / "history") if _RUNS else "data/runs/history"
"""Place of recorded runs unless a setting says otherwise."""

EMBEDDED_CHECKPOINT = PROJECT_ROOT / "data" / "mini"
ALLOWED_CODE = RUNS_DIRECTORY / "allowed_code.json"
"""Hashes of the checkpoints' own code that was allowed to run."""


def cache_directory() -> Path:
    """Name the folder of indexes and compiled kernels: `DSOCR_CACHE`, else `dsocr` in the user's cache."""
    if own := os.environ.get("DSOCR_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "dsocr"
    return home() / ".cache" / "dsocr"


def home() -> Path:
    """Name the user's home; one that is not there for a user with neither HOME nor a name."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def why_unwritable(folder: Path) -> str | None:
    """Say why no file can be made in a folder, existing or not; None where one can."""
    place = folder.absolute()
    try:
        place = next(each for each in (place, *place.parents) if each.exists())
    except OSError as error:
        return f"{place}: {error.strerror}"
    if not place.is_dir():
        return f"{place}: not a folder"
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place}: cannot be written to"


class Temporary(tempfile.TemporaryDirectory[str]):
    """A temporary directory whose name says for what it is."""

    def __init__(self, what: str) -> None:
        super().__init__(prefix=f"dsocr-{what}-", ignore_cleanup_errors=True)
