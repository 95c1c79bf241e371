"""Answers of the opener's process: a letter, and what it says. Pixels lie in shared memory."""

from __future__ import annotations

import struct

REFUSED = b"U"
"""And why, in UTF-8."""
COUNTED = b"N"
"""And the number of a file's pages, in digits."""
OPENED = b"P"
RUNS = b"T"
"""A page's text; its runs lie as JSON in the memory that comes along."""

PAGE = struct.Struct("=cIIBbB")
"""OPENED, width, height, the number of its mode in MODES, its turn (an Image.Transpose that is left to do,
UPRIGHT or TURNED), and the number of what to say of it in NOTICES."""
UPRIGHT, TURNED = -1, -2
"""As it was stored, and turned already as its EXIF says."""
