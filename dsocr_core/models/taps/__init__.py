"""A run's tensors on disk, and the hooks that bring them there.

Needs torch and safetensors, nothing else of this project: the worker's interpreter imports it too.
"""
