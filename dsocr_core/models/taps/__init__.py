"""A run's tensors on disk, and the hooks that bring them there; the worker's interpreter imports it too."""
