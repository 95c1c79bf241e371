"""Parts of the FLOPs page."""
