"""Comparisons of a page drawn from a seed: what two backends may give, hostile texts and failures too."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, OcrResult, TopTwo
from tests.support.planted import KINDS, jitter
from tests.support.results import Block, make_result, markup
from tests.support.review_sides import of_one_file

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
    blocks = [_block(rng) for _ in range(rng.choice((0, 1, 3, 4, 5, 6, 8)))]
    a = _side(rng, names[0], blocks, image)
    changes = (*(KINDS[kind] for kind in ("moved", "missing", "extra", "relabelled", "order")), jitter)
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        if blocks and rng.random() < 0.4:
            at = rng.randrange(len(blocks))
            text = rng.choice((rng.choice(_TEXTS), blocks[at][2].replace("1", "7", 1)))
            blocks[at] = (*blocks[at][:2], text)
        elif len(blocks) > 2:
            rng.choice(changes)(blocks, rng)
    b = _side(rng, names[1], blocks, image) if rng.random() < 0.7 else replace(a, backend=names[1])
    errors = {side: rng.choice(_ERRORS) for side in SIDES if rng.random() < 0.06}
    return Comparison(a.request, None if "a" in errors else a, None if "b" in errors else b, errors)


def _block(rng: random.Random) -> Block:
    x, y = rng.randint(0, 800), rng.randint(0, 900)
    box = (x, y, x + rng.randint(1, 199), y + rng.randint(1, 99))
    return rng.choice(_LABELS), box, rng.choice(_TEXTS)


def _side(rng: random.Random, backend: str, blocks: list[Block], image: Path) -> OcrResult:
    text = rng.choice(("", "", "said before the first block\n")) + markup(blocks)
    cut = rng.random() < 0.1
    inputs = {"tiles_sha256": "cc"} if rng.random() < 0.1 else {}
    size = (800, 1000) if rng.random() < 0.04 else (1000, 800)
    text = text[: len(text) * 2 // 3] if cut else text
    result = of_one_file(make_result(text, backend, image, image_size=size, **inputs))
    kind = rng.random()
    if kind < 0.2:  # what another program left: a text
        return replace(
            result, token_ids=None, token_texts=(), finish_reason=None, inputs=None, timings=(),
            environment={"writer": "x"}, boxes_known=bool(blocks),
        )  # fmt: skip
    if kind < 0.35:  # a server
        said = {"finish_reason": "stop", "usage": "3"}
        return replace(result, token_texts=(), inputs=None, environment=said)
    if kind < 0.6:
        top = (TopTwo((token, 3), (2.0 + rng.random(), 2.0)) for token in result.required_tokens)
        result = replace(result, top_two=tuple(top))
    return replace(result, finish_reason="length") if cut else result
