"""Kernels of a decode step of one page."""
