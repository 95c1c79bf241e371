"""Kernels of a decode step for many streams."""
