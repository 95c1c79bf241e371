"""The kernels on this machine: compiled where there is a GPU, else in Triton's interpreter."""

from tests.kernels.interpreter import device, interpreter_as_devices

__all__ = ["device", "interpreter_as_devices"]
