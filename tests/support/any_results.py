"""Any `OcrResult`: every field None or not, hostile texts, half surrogates, thousands of boxes.

Made of a seed, which Hypothesis draws, so that 2,000 of them take seconds.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from dsocr_core.models.family import all_stages
from dsocr_core.reading.records import (
    UNLIMITED,
    ModelInputs,
    OcrRequest,
    OcrResult,
    PageFile,
    StageTiming,
    TopTwo,
)

HOSTILE = (
    "", " ", "\x00", "\ud800", "a\udcffb", "\u202e<script>", "'; DROP TABLE runs; --", "<|ref|>", "<|/det|>",
    "\\", "\\xff", "null", "NaN", "=1+1", "\U0001f4c4", "\r\n", "\ufeff", "<image>", "{rows}", "$files",
    "é", "\u0301", "<PAGE>", "<|det|>text [1, 2, 3, 4]<|/det|>",
)  # fmt: skip
_MARK = "<|ref|>{}<|/ref|><|det|>[[{}, {}, {}, {}]]<|/det|>\n{}"


def any_result(seed: int, boxes: int = 3) -> OcrResult:
    """The result of a seed, with that many boxes in its text or none."""
    draw = random.Random(seed)
    known = draw.random() < 0.7
    tokens = draw.choice([None, (), tuple(_number(draw, 2**17) for _ in range(draw.randrange(1, 9)))])
    steps = len(tokens) if tokens and draw.random() < 0.6 else 0
    request = _request(draw, seed)
    return OcrResult(
        backend=draw.choice(["eager", "fast", "vendor", "mine"]),
        request=request,
        image_size=(draw.randrange(0, 9000), draw.randrange(0, 9000)),
        text_raw=_text(draw) + "".join(_block(draw) for _ in range(boxes)) + _text(draw),
        token_ids=tokens,
        token_texts=tuple(_text(draw) for _ in tokens) if tokens and draw.random() < 0.7 else (),
        finish_reason=draw.choice([None, "eos", "length"]),
        inputs=_inputs(draw) if known else None,
        timings=tuple(
            StageTiming(stage, draw.choice([0.0, draw.random() * 1e4, 5e-324]), draw.randrange(1, 9000))
            for stage in draw.sample([*all_stages()], draw.randrange(0, len(all_stages())))
        ),
        environment={_text(draw): _text(draw) for _ in range(draw.randrange(0, 5))},
        boxes_known=draw.random() > 0.1,
        top_two=tuple(_step(draw) for _ in range(steps)),
        text_tokens=draw.choice([None, 0, _number(draw, 10**6)]),
        more_sizes=tuple((draw.randrange(0, 9000), 40) for _ in request.more) if seed % 3 else (),
    )


def _request(draw: random.Random, seed: int) -> OcrRequest:
    image = Path(draw.choice([f"page-{seed}.png", f"/a/b {seed}/\udcff.png", f"q\\{seed}.jpg"]))
    source = draw.choice(["", f"book.pdf#{seed}", f"{_text(draw)}{seed}"])
    if draw.random() < 0.2:
        known: dict[str, Any] = {"preset": "small"} if draw.random() < 0.5 else {}
        return OcrRequest.imported(image, source=source, **known)
    more = tuple(Path(f"more-{number}.png") for number in range(draw.randrange(0, 3)))
    return OcrRequest(
        image,
        preset=draw.choice(["small", "gundam", _text(draw)]),
        prompt=draw.choice(["<image>Multi page parsing.", _text(draw)]),
        max_new_tokens=draw.choice([UNLIMITED, 1, 2**40]),
        no_repeat_ngram_size=draw.randrange(0, 50),
        source=source,
        eval_mode=draw.random() < 0.5,
        test_compress=draw.random() < 0.5,
        ngram_window=draw.randrange(0, 99),
        ngram_whitelist=tuple(_text(draw) for _ in range(draw.randrange(0, 3))),
        max_tiles=draw.randrange(1, 40),
        tile_size=draw.choice([640, 2**70]),
        template=draw.choice(["plain", "no_newline", "roles"]),
        exif=draw.random() < 0.5,
        model=draw.choice(["deepseek_ocr", "unlimited_ocr", _text(draw)]),
        more=more,
        more_files=tuple(PageFile(draw.randrange(0, 2**40), "cd" * 32) for _ in more) if seed % 2 else (),
        file=draw.choice([None, PageFile(draw.randrange(0, 2**40), "ab" * 32)]),
    )


def _inputs(draw: random.Random) -> ModelInputs:
    mask = tuple((_number(draw, 9000), _number(draw, 9000)) for _ in range(draw.randrange(0, 4)))
    return ModelInputs(
        prompt_ids=tuple(_number(draw, 2**17) for _ in range(draw.randrange(0, 9))),
        image_mask=mask,
        grid=(draw.randrange(1, 9), draw.randrange(1, 9)),
        global_shape=(1, 3, 1024, 1024),
        global_sha256=_text(draw),
        tiles_shape=tuple(_number(draw, 2**20) for _ in range(draw.randrange(0, 5))),
        tiles_sha256=_text(draw),
        no_repeat_ngram_size=draw.randrange(0, 40),
        max_new_tokens=_number(draw, 2**33),
        attention=_text(draw),
        dtype=draw.choice(["bfloat16", _text(draw)]),
        rotary_dtype=_text(draw),
        ngram_window=draw.randrange(0, 2000),
        ngram_whitelist=tuple(_text(draw) for _ in range(draw.randrange(0, 3))),
    )


def _step(draw: random.Random) -> TopTwo:
    first = draw.uniform(-50, 50)
    return TopTwo((_number(draw, 2**17), _number(draw, 2**17)), (first, first - draw.random()))


def _block(draw: random.Random) -> str:
    corners = [draw.choice([draw.randrange(0, 1000), 999.5, -3]) for _ in range(4)]
    return _MARK.format(draw.choice(["title", "text", _text(draw)]), *corners, _text(draw))


def _text(draw: random.Random) -> str:
    return "".join(draw.choice(HOSTILE) for _ in range(draw.randrange(0, 3)))


def _number(draw: random.Random, most: int) -> int:
    """Now and then more than 32 or 64 bits hold."""
    return draw.randrange(0, most) if draw.random() < 0.98 else draw.choice([2**31, 2**63, 2**80])
