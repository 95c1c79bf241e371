"""Bytes damaged at random: flipped, cut, repeated, overwritten with what parsers trip over."""

from __future__ import annotations

from random import Random

_AWKWARD = (
    b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"-1", b"9" * 30, b"1e999", b"NaN", b"\r\n",
)  # fmt: skip


def damaged(random: Random, content: bytes) -> bytes:
    """The content with one to six damages."""
    raw = bytearray(content)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(raw)) if raw else 0
        match random.randrange(5):
            case 0:
                raw[at : at + 1] = bytes([random.randrange(256)])
            case 1 if raw:
                raw[at] ^= 1 << random.randrange(8)
            case 2:
                del raw[at : at + random.choice((1, 2, 4, 64, len(raw)))]
            case 3:
                raw[at:at] = raw[at : at + random.randint(1, 64)] * random.choice((1, 2, 50))
            case _:
                piece = random.choice(_AWKWARD)
                raw[at : at + len(piece)] = piece
    return bytes(raw) or b"\0"
