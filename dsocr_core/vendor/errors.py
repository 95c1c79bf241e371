"""Errors of the vendor backend, and the exception that leaves the published code."""

from dsocr_core.base.errors import DsocrError


class VendorError(DsocrError):
    """Base class. `stderr_tail` is the end of what the worker and the published code printed."""

    def __init__(self, message: str, stderr_tail: str = "") -> None:
        super().__init__(message)
        self.stderr_tail = stderr_tail


class RemoteCodeNotAllowed(VendorError):
    """Remote code of a checkpoint that the user has not allowed; the embedded one's always runs."""


class VendorFailed(VendorError):
    """The published code raised or ran out of memory, or its worker died, was late or sent nonsense."""


class StoppedByCaller(BaseException):
    """Raised inside the published code to leave it. Not an Exception, so that it is not caught there."""
