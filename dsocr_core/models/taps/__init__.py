"""A run's tensors on disk, and the hooks that bring them there.

Needs torch, safetensors and `dsocr_core.base` alone: the worker's interpreter imports it too.
"""
