"""What went into a model, as the tests of this folder have it."""

from __future__ import annotations

from dsocr_core.reading.records import ModelInputs

INPUTS = ModelInputs(
    (0, 1), ((1, 1),), (2, 2), (1, 3, 8, 8), "g", (4, 3, 8, 8), "t", 20, 200, "sdpa", "float32", "float32"
)
