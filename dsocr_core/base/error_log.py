"""Log of internal errors: people get a sentence and a number, the log has the rest."""

from __future__ import annotations

import logging
import secrets
import traceback
from datetime import UTC, datetime
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.base.sanitise import visible

log = logging.getLogger(__name__)

LOG_FILE = RUNS_DIRECTORY / "errors.log"
_MOST_BYTES = 8 * 1024 * 1024
"""Largest size of the log; then it begins anew, and the one before stays beside it."""


class Unforeseen(DsocrError):
    """An error of ours that nobody foresaw: its number, under which the log has the rest."""


def report(error: BaseException, where: str) -> tuple[str, Path | None]:
    """Write an error with its traceback to the log; returns its number, and the log unless that failed."""
    number = secrets.token_hex(4)
    text = "".join(traceback.format_exception(error))
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    entry = visible(f"{moment} {number} {where}\n{text}\n").encode(errors="replace")
    try:
        LOG_FILE.parent.mkdir(parents=True, exist_ok=True)
        if LOG_FILE.exists() and LOG_FILE.stat().st_size > _MOST_BYTES:
            LOG_FILE.replace(LOG_FILE.with_suffix(".log.1"))
        with LOG_FILE.open("ab") as handle:
            handle.write(entry)
    except OSError as failure:
        log.warning("%s: could not be written (%s)", LOG_FILE, failure.strerror)
        return number, None
    return number, LOG_FILE


def unforeseen(error: BaseException, where: str) -> str:
    """The sentence that people get about such an error; the log has the rest, what it says included."""
    number, file = report(error, where)
    rest = f"{file.name} has the rest" if file else "its details could not be written"
    return f"unforeseen {type(error).__name__}, number {number}: {rest}"


def page_error(error: BaseException, page: str) -> DsocrError:
    """Give what a page failed with: an error for people as it is, any other by its number in the log."""
    return error if isinstance(error, DsocrError) else Unforeseen(unforeseen(error, page))
