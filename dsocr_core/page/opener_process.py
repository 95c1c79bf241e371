"""The opener's process: decodes and renders what is hostile, within limits that the system enforces.

Started by opener.py as `python -m dsocr_core.page.opener_process SOCKET USUAL`, descriptors of a Unix
socket and of memory for the pixels of usual pages. A request is one JSON object, an answer one of
opener_answers.py; a descriptor of pixels goes with it where they do not fit there. It ends with its caller.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageFile

from dsocr_core.base.system import limit_cpu, memory_limit, new_memory
from dsocr_core.page.decoding import (
    MODES,
    NOTICES,
    Decoded,
    PixelMemory,
    Unreadable,
    cause,
    decode,
    frames_of,
)  # fmt: skip
from dsocr_core.page.opener_answers import (
    COUNTED,
    OPENED,
    PAGE,
    REFUSED,
    RUNS,
    TURNED,
    UPRIGHT,
    next_message,
    send_message,
)  # fmt: skip
from dsocr_core.page.rendering import page_count, render, text_layer

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
    while content := next_message(channel, REQUEST_BYTES)[0]:
        request, pixels = json.loads(content), None
        limit_cpu(int(time.process_time()) + 1 + request["cpu_seconds"])
        try:
            with memory_limit(request["memory_bytes"]):
                answer, pixels = _answer(request, usual)
        except Unreadable as error:
            answer = REFUSED + str(error)[:_ANSWER_CHARACTERS].encode("utf-8", "replace")
        except MemoryError:
            answer = REFUSED + b"takes more memory to open than a page may; make it smaller"
        send_message(channel, answer, () if pixels is None else (pixels,))
        if pixels is not None:
            os.close(pixels)
    return 0


def _answer(request: dict[str, Any], usual: PixelMemory) -> tuple[bytes, int | None]:
    """Make what to say, and a descriptor of pixels that do not fit where those of usual pages do."""
    path, max_pixels = request["path"], request["max_pixels"]
    _check_file(path)
    if request["work"] == "count":
        count = page_count(Path(path)) if path.lower().endswith(".pdf") else len(frames_of(path))
        return COUNTED + str(count).encode(), None
    if request["work"] == "text":
        runs = new_memory()
        with os.fdopen(runs, "wb", closefd=False) as handle:
            handle.write(json.dumps(text_layer(Path(path), request["number"])).encode("utf-8", "replace"))
        return RUNS, runs
    if request["work"] == "image":
        memory_bytes, frame = request["memory_bytes"], request["frame"]
        page = decode(path, max_pixels, memory_bytes, usual, request["exif"], frame)
    else:
        page = Decoded(render(Path(path), request["number"], request["dpi"], max_pixels))
    image, turn, notice, turned = page
    left = turn if turn is not None else TURNED if turned else UPRIGHT
    answer = PAGE.pack(OPENED, *image.size, MODES.index(image.mode), left, NOTICES.index(notice))
    if usual.takes(image):
        usual.take(image)
        return answer, None
    return answer, _written(image)


def _check_file(path: str) -> None:
    """A pipe or a terminal would be waited for. Raises Unreadable."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - many times the time of the call
    except OSError as error:
        raise Unreadable(f"cannot be read ({cause(error)})") from error
    if not stat.S_ISREG(mode):
        raise Unreadable("is not a regular file; copy it to one")


def _written(image: Image.Image) -> int:
    """A descriptor of memory with the pixels row after row, four bytes each: as they lie in Pillow's."""
    descriptor = new_memory()
    try:
        with os.fdopen(descriptor, "wb", buffering=0, closefd=False) as handle:
            tile = ImageFile._Tile("raw", (0, 0, *image.size), 0, "RGBX")
            ImageFile._save(image, handle, [tile], _AT_ONCE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


if __name__ == "__main__":
    sys.exit(main())
