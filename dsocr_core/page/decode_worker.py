"""Process that decodes and renders untrusted files within limits that the system enforces.

Started by decode_pool.py as `python -m dsocr_core.page.decode_worker MEMORY`, the descriptor of memory for
pixels. Requests and answers are lines of JSON. It ends with its caller.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import stat
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from dsocr_core.base.system import limit_cpu, memory_limit
from dsocr_core.page.decoding import NOTICES, DecodedPage, Unreadable, black, cause, decode, frames_of
from dsocr_core.page.rendering import page_count, render, text_layer

_MOST_REASON = 1000


def main() -> int:
    memory = mmap.mmap(int(sys.argv[1]), 0)
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Image.init()
        PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY
        gc.freeze()  # what is imported stays: no collection looks at it again
        for line in sys.stdin.buffer:
            request = json.loads(line)
            limit_cpu(int(time.process_time()) + 1 + request["cpu_seconds"])
            try:
                with memory_limit(request["memory_bytes"]):
                    answer = _answer(request, memory)
            except Unreadable as error:
                answer = {"refused": str(error)[:_MOST_REASON]}
            except MemoryError:
                answer = {"refused": "takes more memory to open than a page may; make it smaller"}
            answers.write(json.dumps(answer).encode() + b"\n")
    return 0


def _answer(request: dict[str, Any], memory: mmap.mmap) -> dict[str, Any]:
    """Raises Unreadable, MemoryError."""
    work, path, max_pixels = request["work"], request["path"], request["max_pixels"]
    _check_file(path)
    if work == "count":
        return {"count": page_count(Path(path)) if path.lower().endswith(".pdf") else len(frames_of(path))}
    if work == "text":
        return {"text": text_layer(Path(path), request["number"])}
    if work == "image":
        limits = max_pixels, request["memory_bytes"]
        page = decode(path, *limits, memory, request["exif"], request["number"])
    else:
        page = DecodedPage(render(Path(path), request["number"], request["dpi"], max_pixels))
        black(memory, page.image.size).paste(page.image.im, (0, 0, *page.image.size))
    return {"page": [*page.image.size, NOTICES.index(page.notice), page.turned]}


def _check_file(path: str) -> None:
    """A pipe or a terminal would be waited for. Raises Unreadable."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - many times the time of the call
    except OSError as error:
        raise Unreadable(f"cannot be read ({cause(error)})") from error
    if not stat.S_ISREG(mode):
        raise Unreadable("is not a regular file; copy it to one")


if __name__ == "__main__":
    sys.exit(main())
