"""Kernels of a decode step of many pages."""
