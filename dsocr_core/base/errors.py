"""Errors meant for people: their text is one line with the file, the cause and the way out."""


class DsocrError(Exception):
    """Base of every error a user may see; the command line and the pages print its text, no traceback."""


class Cancelled(DsocrError):
    """The caller asked for the recognition to stop."""

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


def one_line(error: BaseException, most: int = 300) -> str:
    """Write what an error of a library says, on one line of so many characters at most."""
    return " ".join(str(error).split())[:most] or type(error).__name__
