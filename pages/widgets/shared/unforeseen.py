"""The one place that turns an error nobody foresaw into a sentence with a number; the log has the rest."""

from __future__ import annotations

from streamlit import error_util

from dsocr_core.error_log import unforeseen
from dsocr_core.errors import DsocrError
from pages.widgets.shared.messages import show_error


def catch_all() -> None:
    """Have Streamlit show such errors of scripts, callbacks and fragments by `show`."""
    error_util.show_uncaught_app_exception = show  # type: ignore[assignment]


def show(error: BaseException) -> None:
    """The error on the page, without names of files and lines of the program."""
    show_error(str(error) if isinstance(error, DsocrError) else unforeseen(error, "the app"))
