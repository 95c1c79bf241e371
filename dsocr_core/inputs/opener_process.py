"""The opener's process: decodes and renders what is hostile, within limits that the system enforces.

Started by opener.py as `python -m dsocr_core.inputs.opener_process SOCKET USUAL`, descriptors of a Unix
socket and of memory for the pixels of usual pages. A request is one JSON object with a descriptor for the
pixels of a page that does not fit there; the answer is one JSON object. It ends with its caller.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from PIL import Image, ImageFile

from dsocr_core.inputs.decoding import Decoded, PixelMemory, Unreadable, decode
from dsocr_core.inputs.rendering import page_count, render

REQUEST_BYTES = 64 * 1024
_ANSWER_CHARACTERS = 1000
_AT_ONCE = 256 * 1024
"""Bytes of a write: more than a core's cache holds would be read from memory again."""


def main() -> int:
    channel = socket.socket(fileno=int(sys.argv[1]))
    usual = PixelMemory(mmap.mmap(int(sys.argv[2]), 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Image.init()
    gc.freeze()  # what is imported stays: no collection looks at it again
    while True:
        request, descriptors, *_ = socket.recv_fds(channel, REQUEST_BYTES, 1)
        if not request:
            return 0
        (pixels,) = descriptors
        try:
            answer = _answer(json.loads(request), pixels, usual)
        except Unreadable as error:
            answer = {"unreadable": str(error)[:_ANSWER_CHARACTERS]}
        except MemoryError:
            answer = {"unreadable": "takes more memory to open than a page may; make it smaller"}
        finally:
            os.close(pixels)
        channel.sendall(json.dumps(answer).encode())


def _answer(request: dict[str, Any], pixels: int, usual: PixelMemory) -> dict[str, Any]:
    _limit(request["memory_bytes"], request["cpu_seconds"])
    path = Path(request["path"])
    if request["work"] == "count":
        return {"count": page_count(path)}
    if request["work"] == "image":
        limits = request["max_pixels"], request["memory_bytes"]
        page = decode(path, *limits, usual, request.get("exif", True))
    else:
        page = Decoded(render(path, request["number"], request["dpi"], request["max_pixels"]))
    if usual.takes(page.image):
        usual.take(page.image)
    else:
        write_pixels(page.image, pixels)
    return {"size": page.image.size, "mode": page.image.mode, "turn": page.turn}


def _limit(memory_bytes: int, cpu_seconds: int) -> None:
    """From now on: so much more memory and so much more computing, or the system refuses and ends us."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, resource.RLIM_INFINITY))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = usage.ru_utime + usage.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + 1 + cpu_seconds, resource.RLIM_INFINITY))


def write_pixels(image: Image.Image, descriptor: int) -> None:
    """The pixels row after row, four bytes each: as they lie in Pillow's memory."""
    with os.fdopen(os.dup(descriptor), "wb", buffering=0) as handle:
        ImageFile._save(image, handle, [ImageFile._Tile("raw", (0, 0, *image.size), 0, "RGBX")], _AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
