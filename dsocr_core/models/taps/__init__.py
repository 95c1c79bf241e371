"""Tensors of a run on disk, and the hooks that record them. The worker's interpreter imports this, too."""
