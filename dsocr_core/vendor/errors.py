"""Errors of the vendor backend, as the caller gets them."""

from dsocr_core.base.errors import DsocrError


class VendorError(DsocrError):
    """Base. `stderr_tail` is the end of what the worker and the vendor's code printed."""

    def __init__(self, message: str, stderr_tail: str = "") -> None:
        super().__init__(message)
        self.stderr_tail = stderr_tail


class RemoteCodeNotAllowed(VendorError):
    """The checkpoint's code is not the embedded one's, and its directory was not allowed by name."""


class VendorNeedsCuda(VendorError):
    """The checkpoint's code moves everything to a GPU itself."""


class VendorNeedsBfloat16(VendorError):
    """The checkpoint's code runs in bfloat16 only."""


class VendorFailed(VendorError):
    """The vendor's code raised, or its worker could not be started or understood."""


class VendorCrashed(VendorError):
    """The worker process died."""


class VendorTimeout(VendorError):
    """The worker took longer than allowed and was killed."""


class VendorOutOfMemory(VendorError):
    """The vendor's code ran out of memory."""
