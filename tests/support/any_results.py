"""Any `OcrResult`: every field None or not, hostile texts, half surrogates, thousands of boxes.

Made of a seed, which Hypothesis draws, so that 2,000 of them take seconds.
"""

from __future__ import annotations

import functools
import random
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrResult, TopTwo

HOSTILE = (
    "", " ", "\x00", "\ud800", "a\udcffb", "\u202e<script>", "'; DROP TABLE runs; --", "<|ref|>", "<|/det|>",
    "\\", "\\xff", "null", "NaN", "=1+1", "\U0001f4c4", "\r\n", "\ufeff", "<image>", "{rows}", "$files",
    "é", "\u0301", "<PAGE>", "<|det|>text [1, 2, 3, 4]<|/det|>",
)  # fmt: skip
_hints = functools.cache(get_type_hints)


def any_result(seed: int, boxes: int = 3) -> OcrResult:
    """The result of a seed, with that many boxes in its text or none."""
    draw = random.Random(seed)
    made = _made(OcrResult, draw)
    tokens, more, text = made.token_ids or (), made.request.more, made.text_raw
    for _ in range(draw.choice([0, boxes])):
        corners = draw.choices((0, 7, 640, 999.5, -3), k=4)
        text += f"<|ref|>{_text(draw)}<|/ref|><|det|>[{corners}]<|/det|>\n{_text(draw)}"
    image = Path(draw.choice([f"page-{seed}.png", f"/a/b {seed}/\udcff.png", f"q\\{seed}.jpg"]))
    files = (made.request.file,) * len(more) if made.request.file else ()
    return replace(
        made,
        backend=draw.choice(["eager", "fast", "vendor", "mine"]),
        timings=tuple(replace(each, calls=min(each.calls, 2**31 - 1)) for each in made.timings),
        text_raw=text,
        token_texts=made.token_texts and tuple(_text(draw) for _ in tokens),
        top_two=made.top_two
        and tuple(TopTwo((token, 3), (draw.random(), -draw.random())) for token in tokens),
        more_sizes=((40, 30),) * len(more) if made.more_sizes else (),
        request=replace(made.request, image=image, more_files=files),
    )


def _made(kind: Any, draw: random.Random) -> Any:
    """Any value of a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _made(draw.choice(parts), draw)
    if origin is Literal:
        return draw.choice(parts)
    if origin is tuple:
        each = parts[:1] * draw.randrange(5) if parts[1:] == (...,) else parts
        return tuple(_made(part, draw) for part in each)
    if origin is dict:
        return {_made(str, draw): _made(str, draw) for _ in range(draw.randrange(4))}
    if kind is Stage:
        return draw.choice([*Stage])
    if is_dataclass(kind):
        return kind(**{name: _made(hint, draw) for name, hint in _hints(kind).items()})  # type: ignore[operator]
    makers = {
        str: lambda: _text(draw),
        bool: lambda: draw.random() < 0.5,
        # Now and then more than 32 or 64 bits hold.
        int: lambda: draw.randrange(9000) if draw.random() < 0.97 else draw.choice([2**31, 2**63, 2**80]),
        float: lambda: draw.choice([0.0, draw.random() * 1e4, 5e-324]),
        Path: lambda: Path(f"more-{draw.randrange(9)}.png"),
        type(None): lambda: None,
    }
    return makers[kind]()


def _text(draw: random.Random) -> str:
    return "".join(draw.choice(HOSTILE) for _ in range(draw.randrange(3)))
