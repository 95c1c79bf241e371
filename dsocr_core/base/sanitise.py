"""Untrusted names and texts as they are stored and shown.

A file's name is bytes; Python holds those that are not UTF-8 as half surrogates, which no file, table or
terminal takes. Its text has them as `\\xff`, can be read by people, and leads back to the name.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import PurePath
from typing import Any

_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\\\|\\x([0-9a-f]{2})")
_CONTROL = re.compile(
    # C0 without line end and tab, DEL, C1; marks that turn the direction of what follows; half surrogates.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def name_text(name: str | PurePath) -> str:
    """A file name or path as text that can be stored: bytes that are not UTF-8 are escaped."""
    text = str(name)
    plain = not _NOT_UTF8.search(text) and not _ESCAPED.search(text)
    return text if plain else encodable(text.replace("\\", "\\\\"))


def text_name(text: str) -> str:
    """The file name or path of a `name_text`."""
    return _ESCAPED.sub(lambda found: os.fsdecode(bytes.fromhex(found[1])) if found[1] else "\\", text)


def encodable(text: str) -> str:
    """Escape in a text what UTF-8 cannot hold."""
    return _NOT_UTF8.sub(_escape, text)


def without_surrogates(text: str) -> str:
    """Replace surrogates in a foreign text: pairs by their character, half ones by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def visible(text: str) -> str:
    """A text for a terminal: what would steer it, or be no character at all, is written as an escape."""
    return _CONTROL.sub(_escape, text)


def json_line(data: Any) -> str:
    """JSON on one line, readable, in which nothing can steer a terminal and everything can be encoded."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(data, ensure_ascii=False))


def json_bytes(data: Any, indent: int | None = None) -> bytes:
    """UTF-8 JSON. Half surrogates of model text become question marks."""
    return json.dumps(data, ensure_ascii=False, indent=indent).encode(errors="replace")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code <= 0xDFFF:  # a byte that is not UTF-8, or a half surrogate
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "?"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
