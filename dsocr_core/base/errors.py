"""Errors meant for people, one line each, and the log of internal ones: its number leads to the rest."""

from __future__ import annotations

import secrets
import traceback
from datetime import UTC, datetime

from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.base.sanitise import visible

LOG_FILE = RUNS_DIRECTORY / "errors.log"
_MOST_BYTES = 8 * 1024 * 1024  # of the log; then it begins anew


class DsocrError(Exception):
    """Base of every error a user may see; the command line and the pages print its text, no traceback."""


class Cancelled(DsocrError):
    """The caller asked for the recognition to stop."""

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


def one_line(error: BaseException, most: int = 300) -> str:
    """Write what an error of a library says, on one line of so many characters at most."""
    return " ".join(str(error).split())[:most] or type(error).__name__


def unforeseen(error: BaseException, where: str) -> str:
    """Write an error of ours with its traceback to the log. Returns the sentence that people get."""
    number, moment = secrets.token_hex(4), datetime.now(UTC).isoformat(timespec="seconds")
    entry = f"{moment} {number} {where}\n{''.join(traceback.format_exception(error))}\n"
    try:
        LOG_FILE.parent.mkdir(parents=True, exist_ok=True)
        full = LOG_FILE.exists() and LOG_FILE.stat().st_size > _MOST_BYTES
        with LOG_FILE.open("wb" if full else "ab") as handle:
            handle.write(visible(entry).encode(errors="replace"))
    except OSError as failure:
        return f"unforeseen {type(error).__name__}; {LOG_FILE} could not be written ({failure.strerror})"
    return f"unforeseen {type(error).__name__}, number {number}: {LOG_FILE.name} has the rest"


def page_error(error: BaseException, page: str) -> DsocrError:
    """Give what a page failed with: an error for people as it is, any other by its number in the log."""
    return error if isinstance(error, DsocrError) else DsocrError(unforeseen(error, page))
