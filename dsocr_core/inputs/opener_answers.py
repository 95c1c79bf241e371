"""What the opener's process answers: a letter, and what it says. Pixels lie in shared memory."""

from __future__ import annotations

import struct

REFUSED = b"U"
"""And why, in UTF-8."""
COUNTED = b"N"
"""And the number of a PDF's pages, in digits."""
OPENED = b"P"

PAGE = struct.Struct("=cIIBb")
"""OPENED, width, height, the number of its mode in MODES, and its turn: an Image.Transpose or UPRIGHT."""
UPRIGHT = -1
