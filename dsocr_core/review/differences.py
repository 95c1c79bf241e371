"""Differences between both sides of a page, and the evidence for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.markup import Box
from dsocr_core.reading.output_findings import loose_text
from dsocr_core.reading.parity import is_plain
from dsocr_core.reading.parity_records import BoxPair, InputLine
from dsocr_core.reading.records import SIDES, OcrResult
from dsocr_core.review.page import KINDS, BlockText, Difference, Kind, ReadingOrder
from dsocr_core.review.repetition import Loop, find_loop
from dsocr_core.runs.results import NO_TEXT

_PAGE_LIMIT, _BLOCK_LIMIT = 100_000, 20_000
"""Characters of a page's and of a block's text that are measured: the distance is quadratic in them."""

_GRAVITY = {kind: rank for rank, kind in enumerate(KINDS)}


def block_texts(a: OcrResult, b: OcrResult, pairs: Sequence[BoxPair]) -> tuple[BlockText, ...]:
    """Texts of matched blocks that differ, and the text outside of blocks where that differs.

    The text of a lone box is not among them: its box is the difference.
    """
    if a.text_raw == b.text_raw:
        return ()
    found = []
    loose_a, loose_b = (loose_text(side.text_raw, () if is_plain(side) else side.blocks) for side in (a, b))
    if loose_a != loose_b:
        found.append(_block(None, loose_a, loose_b))
    for number, pair in enumerate(pairs):
        if pair.a and pair.b and pair.a.text != pair.b.text:
            found.append(_block(number, pair.a.text, pair.b.text))
    return tuple(found)


def _block(pair: int | None, a: str, b: str) -> BlockText:
    limit = _PAGE_LIMIT if pair is None else _BLOCK_LIMIT
    return BlockText(pair, a, b, Levenshtein.distance(a[:limit], b[:limit]))


def differences(
    a: OcrResult,
    b: OcrResult,
    pairs: Sequence[BoxPair],
    order: ReadingOrder,
    blocks: Iterable[BlockText],
    inputs: Iterable[InputLine],
) -> tuple[Difference, ...]:
    """Every difference of a page that both sides read, gravest kind first."""
    found = [*_ends(a, b), *_boxes(pairs), *_order(order, pairs), *_texts(blocks, pairs), *_inputs(inputs)]
    return tuple(sorted(found, key=lambda difference: _GRAVITY[difference.kind]))


def unread(names: tuple[str | None, str | None], comparison: Comparison) -> tuple[Difference, ...]:
    """Why there is nothing to compare on a page, and how the side that read it ended."""
    found = list(_ends(comparison.a, comparison.b))
    for side, name in zip(SIDES, names, strict=True):
        error = comparison.errors.get(side)
        if name is None:
            found.append(Difference("absent", side, f"{side.upper()} does not have this page"))
        elif error is not None:
            words = f"could not read it: {error[:300]}" if error != NO_TEXT else "has no recorded text"
            found.append(Difference("failed", side, f"{side.upper()} {words}"))
    return tuple(sorted(found, key=lambda difference: _GRAVITY[difference.kind]))


# --- how each side ended ------------------------------------------------------------------------


def _ends(a: OcrResult | None, b: OcrResult | None) -> Iterator[Difference]:
    limits = (_limit(a), _limit(b))
    loops = tuple(find_loop(side.text_raw) if side and side.text_raw else None for side in (a, b))
    tokens = [_token_at(side, loop) for side, loop in zip((a, b), loops, strict=True)]
    facts = [_loop_facts(loop, token) for loop, token in zip(loops, tokens, strict=True)]
    words = [_loop_words(loop, token) for loop, token in zip(loops, tokens, strict=True)]
    yield from _state("loop", loops, words, facts)
    cut = tuple(_truncated(side, limit) for side, limit in zip((a, b), limits, strict=True))
    words = [f"stopped at the token limit of {_tokens(side)}" for side in (a, b)]
    facts = [_end_facts(side, limit) for side, limit in zip((a, b), limits, strict=True)]
    yield from _state("truncated", cut, words, facts)
    endless = tuple(side is not None and side.finish_reason == "length" for side in (a, b))
    words = [f"wrote no end token within {_tokens(side)}" for side in (a, b)]
    yield from _state("no_eos", endless, words, facts)


def _state(
    kind: Kind, holds: Sequence[object], words: Sequence[str], facts: Sequence[dict[str, int | float | str]]
) -> Iterator[Difference]:
    in_a, in_b = (bool(value) for value in holds)
    if in_a and in_b:
        same = words[0] == words[1]
        both = f"both sides {words[0]}" if same else f"A {words[0]}, B {words[1]}"
        yield Difference(kind, "both", both, evidence=facts[0])
    elif in_a:
        yield Difference(kind, "a", f"A {words[0]}", evidence=facts[0])
    elif in_b:
        yield Difference(kind, "b", f"B {words[1]}", evidence=facts[1])


def _limit(side: OcrResult | None) -> int | None:
    """Most new tokens, None when not known or not limited."""
    if side is None:
        return None
    limit = side.inputs.max_new_tokens if side.inputs is not None else side.request.max_new_tokens
    return limit if isinstance(limit, int) else None


def _truncated(side: OcrResult | None, limit: int | None) -> bool:
    """Stopped by the token limit. Where the limit is not recorded, any stop without an end token counts."""
    if side is None or side.finish_reason != "length":
        return False
    return limit is None or side.new_tokens is None or side.new_tokens >= limit


def _tokens(side: OcrResult | None) -> str:
    return f"{side.new_tokens:,} tokens" if side and side.new_tokens is not None else "its tokens"


def _end_facts(side: OcrResult | None, limit: int | None) -> dict[str, int | float | str]:
    facts = {"tokens": side.new_tokens if side else None, "limit": limit}
    return {name: value for name, value in facts.items() if value is not None}


def _token_at(side: OcrResult | None, loop: Loop | None) -> int | None:
    """Number of the new token that a loop begins in; None where the tokens' texts are not known."""
    if side is None or loop is None or not side.token_texts:
        return None
    ends = accumulate(map(len, side.token_texts))
    return next((number for number, end in enumerate(ends) if end > loop.start), None)


def _loop_words(loop: Loop | None, token: int | None) -> str:
    if loop is None:
        return ""
    since = "" if token is None else f" from token {token:,}"
    return f"repeated {' '.join(loop.unit.split())[:60]!r} {loop.count} times{since}"


def _loop_facts(loop: Loop | None, token: int | None) -> dict[str, int | float | str]:
    if loop is None:
        return {}
    facts: dict[str, int | float | str] = {"period": loop.period, "count": loop.count, "start": loop.start}
    return facts | {"unit": loop.unit[:500]} | ({} if token is None else {"from_token": token})


# --- boxes, order, texts, inputs ----------------------------------------------------------------


def _boxes(pairs: Iterable[BoxPair]) -> Iterator[Difference]:
    for pair in pairs:
        a, b = pair.a, pair.b
        if pair.state == "only_a" and a:
            yield Difference("extra", "a", f"only A has {_named(a)}", (a.index,), (), {"label": a.label})
        elif pair.state == "only_b" and b:
            yield Difference("missing", "b", f"only B has {_named(b)}", (), (b.index,), {"label": b.label})
        elif pair.state in ("moved", "relabelled") and a and b:
            facts = {"iou": round(pair.iou or 0.0, 4), "shift_percent": round(pair.shift_percent or 0.0, 3)}
            if pair.state == "relabelled":
                words = f"box {a.index + 1} is {a.label[:40]} in A and {b.label[:40]} in B"
                named = {"label_a": a.label, "label_b": b.label}
                yield Difference("relabelled", "both", words, (a.index,), (b.index,), facts | named)
            else:
                words = f"{_named(a)} is off by {facts['shift_percent']:.3g} % of the page"
                yield Difference("moved", "both", words, (a.index,), (b.index,), dict(facts))


def _named(box: Box) -> str:
    return f"box {box.index + 1} ({box.label[:40]})"


def _order(order: ReadingOrder, pairs: Iterable[BoxPair]) -> Iterator[Difference]:
    if not order.out_of_order:
        return
    of_b = {pair.a.index: pair.b.index for pair in pairs if pair.a and pair.b}
    count = len(order.out_of_order)
    yield Difference(
        "order",
        "both",
        f"{count} of {order.matched} boxes come{'s' * (count == 1)} elsewhere in the reading order",
        order.out_of_order,
        tuple(of_b[index] for index in order.out_of_order),
        {"inversions": order.inversions, "edit_distance": order.edit_distance},
    )


def _texts(blocks: Iterable[BlockText], pairs: Sequence[BoxPair]) -> Iterator[Difference]:
    for block in blocks:
        rate = block.distance / max(1, len(block.text_b))
        facts: dict[str, int | float | str] = {"distance": block.distance, "error_rate": round(rate, 4)}
        edits = f"{block.distance} edit{'s' * (block.distance != 1)}"
        pair = pairs[block.pair] if block.pair is not None else None
        if pair is not None and pair.a and pair.b:
            words = f"the text of {_named(pair.a)} differs by {edits}"
            yield Difference("text", "both", words, (pair.a.index,), (pair.b.index,), facts)
        else:
            yield Difference("text", "both", f"the text outside of blocks differs by {edits}", evidence=facts)


def _inputs(lines: Iterable[InputLine]) -> Iterator[Difference]:
    differing = [line.name for line in lines if line.unequal]
    if differing:
        words = f"what went into the models differs: {', '.join(differing)}"
        yield Difference("inputs", "both", words, evidence={"lines": ", ".join(differing)})
