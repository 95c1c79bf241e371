"""Parts of the Timing page."""
