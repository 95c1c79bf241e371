"""Kernels of one decode step for one stream."""
