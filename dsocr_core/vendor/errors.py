"""Errors of the vendor backend, as the caller gets them, and what leaves the code in the worker."""

from dsocr_core.base.errors import DsocrError


class VendorError(DsocrError):
    """Base. `stderr_tail` is the end of what the worker and the vendor's code printed."""

    def __init__(self, message: str, stderr_tail: str = "") -> None:
        super().__init__(message)
        self.stderr_tail = stderr_tail


class RemoteCodeNotAllowed(VendorError):
    """The checkpoint's code is not the embedded one's, and its directory was not allowed by name."""


class VendorFailed(VendorError):
    """The vendor's code raised or ran out of memory, or its worker died, was late or not understood."""


class StoppedByCaller(BaseException):
    """Raised inside the vendor's code to leave it; its own `except Exception` must not catch it."""
