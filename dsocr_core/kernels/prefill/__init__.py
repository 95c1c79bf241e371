"""Kernels of vision and prefill."""
