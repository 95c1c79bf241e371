"""Bytes damaged at random: flipped, cut, repeated, overwritten; values that parsers trip over."""

from __future__ import annotations

from random import Random
from typing import Any

_AWKWARD = (
    b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"-1", b"9" * 30, b"1e999", b"NaN", b"\r\n",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 10**6, 10**9, 10**12, 10**30, 10**400, -(10**18), 1.5, 1e308, float("nan"), float("inf"),
    True, None, "", "x", "../x", "/dev/zero", "a\0b", "x" * 20_000, "\ud800", ["\ud83d"], {"\udfff": 1},
    [], {}, [1] * 10_000, [[]], [None], {"a": {}}, {"ngram_size": "\ud800"}, {"type": "text"},
)  # fmt: skip
"""Of JSON documents."""


def damaged(random: Random, content: bytes) -> bytes:
    """The content with one to six damages."""
    raw = bytearray(content)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(raw) + 1)
        match random.randrange(4):
            case 0 if raw[at:]:
                raw[at] ^= 1 << random.randrange(8)
            case 1:
                del raw[at : at + random.choice((1, 2, 4, 64, len(raw)))]
            case 2:
                raw[at:at] = raw[at : at + random.randint(1, 64)] * random.choice((1, 2, 50))
            case _:
                piece = random.choice(_AWKWARD)
                raw[at : at + len(piece)] = piece
    return bytes(raw) or b"\0"
