"""Places of the project: its checkout, what it writes, the embedded checkpoint."""

from __future__ import annotations

import os
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
