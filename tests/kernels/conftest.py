"""The kernels on this machine: compiled where there is a GPU, else in Triton's interpreter."""

from importlib.util import find_spec

from tests.support.interpreter import device, interpreter_as_devices
from tests.support.quick_operators import quick_operators

__all__ = ["device", "interpreter_as_devices", "quick_operators"]

HAS_TRITON = find_spec("triton") is not None
if not HAS_TRITON:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str | None:
    return None if HAS_TRITON else "tests/kernels: skipped, triton is not installed"
