"""Comparisons of a page drawn from a seed: what two backends may give, hostile texts and failures too."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrResult, PageFile, Side, TopTwo
from tests.support.planted import KINDS, jitter
from tests.support.results import make_result, markup

Block = tuple[str, tuple[float, ...], str]

_LABELS = ("title", "text", "table", "image", "<b>", "sub_title")
_TEXTS = (
    "Total 1,234.00 EUR", "# Alpha", "the first paragraph of the page", "<table><tr><td>1</td></tr></table>",
    "<script>alert(1)</script>", "half a pair \ud800 alone", "?", "nul \x00 and \x1b[31m",
    "\u202eright to left", "", "<|ref|>never closed", "a" * 200,
    "2 < 3 && \"quoted\" 'too' ]]>", "\U0001f600 é",
)  # fmt: skip
_ERRORS = ("CUDA <out> of memory", "no page: \ud800 & \x07 bell", "ended by SIGABRT")


def drawn_pair(seed: int, names: tuple[str, str], image: Path) -> Comparison:
    """A page as backends of these names gave it; about one in eight has a side that failed."""
    rng = random.Random(seed)
    blocks = [] if rng.random() < 0.15 else [_block(rng) for _ in range(rng.randint(1, 8))]
    a = _side(rng, names[0], blocks, image)
    b = _side(rng, names[1], _changed(rng, blocks), image)
    if rng.random() < 0.3:
        b = replace(a, backend=names[1])
    sides: dict[Side, OcrResult | None] = {"a": a, "b": b}
    errors: dict[Side, str] = {}
    for side in sides:
        if rng.random() < 0.06:
            sides[side], errors[side] = None, rng.choice(_ERRORS)
    return Comparison(a.request, sides["a"], sides["b"], errors)


def _block(rng: random.Random) -> Block:
    x, y = rng.randint(0, 800), rng.randint(0, 900)
    box = (x, y, x + rng.randint(1, 199), y + rng.randint(1, 99))
    return rng.choice(_LABELS), box, rng.choice(_TEXTS)


def _changed(rng: random.Random, blocks: list[Block]) -> list[Block]:
    """The other side's blocks: the same, or with some changed, moved, exchanged, lost or added."""
    found = list(blocks)
    changes: list[Any] = [
        *(KINDS[kind] for kind in ("moved", "missing", "extra", "relabelled", "order")),
        jitter,
    ]
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        at = rng.randrange(len(found)) if found else 0
        if rng.random() < 0.4 and found:
            label, box, text = found[at]
            found[at] = (label, box, rng.choice((rng.choice(_TEXTS), text.replace("1", "7", 1))))
        elif len(found) > 2:
            rng.choice(changes)(found, rng)
    return found


def _side(rng: random.Random, backend: str, blocks: list[Block], image: Path) -> OcrResult:
    text = rng.choice(("", "", "said before the first block\n")) + markup(blocks)
    inputs: dict[str, Any] = {"tiles_sha256": "cc"} if rng.random() < 0.1 else {}
    size = (800, 1000) if rng.random() < 0.04 else (1000, 800)
    result = of_file(make_result(text, backend, image, image_size=size, **inputs))
    kind = rng.random()
    if kind < 0.2:  # what another program left: a text
        return replace(
            result, token_ids=None, token_texts=(), finish_reason=None, inputs=None, timings=(),
            environment={"writer": "x"}, boxes_known=bool(blocks),
        )  # fmt: skip
    if kind < 0.35:  # a server
        return replace(
            result, token_texts=(), inputs=None, environment={"finish_reason": "stop", "usage": "3"}
        )
    if kind < 0.45:
        cut = len(text) * 2 // 3
        result = of_file(make_result(text[:cut], backend, image, image_size=size, **inputs))
        result = replace(result, finish_reason="length")
    if kind < 0.7:
        margins = (rng.random() for _ in result.token_ids or ())
        top = (
            TopTwo((token, 3), (2.0 + margin, 2.0))
            for token, margin in zip(result.token_ids or (), margins, strict=True)
        )
        result = replace(result, top_two=tuple(top))
    return result


def of_file(result: OcrResult) -> OcrResult:
    content = result.request.image.read_bytes()
    file = PageFile(len(content), hashlib.sha256(content).hexdigest())
    return replace(result, request=replace(result.request, file=file))
