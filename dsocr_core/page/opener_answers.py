"""Messages of the opener's process: an answer is a letter, and what it says. Pixels lie in shared memory."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence

from dsocr_core.base.system import receive

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

_LENGTH = struct.Struct("=I")


def send_message(channel: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message, its length first: a stream is what every system has. Raises OSError."""
    content = _LENGTH.pack(len(message)) + message
    sent = socket.send_fds(channel, [content], descriptors) if descriptors else 0
    channel.sendall(content[sent:])


def next_message(channel: socket.socket, most: int, within_s: float | None = None) -> tuple[bytes, list[int]]:
    """The next message and the descriptors with it, for the caller to close; no bytes at the channel's end.

    Raises OSError for one that is longer than `most`, followed by another or late.
    """
    until = None if within_s is None else time.monotonic() + within_s
    content, descriptors = b"", list[int]()
    try:
        while len(content) < (size := _size(content)):
            if size > _LENGTH.size + most:
                raise OSError("a longer message than is taken")
            if until is not None:
                channel.settimeout(max(until - time.monotonic(), 1e-3))
            chunk, more = receive(channel, _LENGTH.size + most - len(content))
            descriptors += more
            if not chunk:
                return b"", descriptors
            content += chunk
        if len(content) > size:
            raise OSError("more than a message")
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return content[_LENGTH.size :], descriptors


def _size(content: bytes) -> int:
    """Bytes of the message that begins so, its length among them."""
    known = len(content) >= _LENGTH.size
    return _LENGTH.size + (_LENGTH.unpack_from(content)[0] if known else 0)
