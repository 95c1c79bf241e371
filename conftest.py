"""Tests have their own places, whatever the shell names: read before the project is imported."""

import os

for name in ("DSOCR_RUNS", "DSOCR_CACHE", "DSOCR_CONFIG", "DSOCR_ROOTS"):
    os.environ.pop(name, None)
