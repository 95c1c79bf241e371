"""Differences of two results, each once: how they ended, boxes, their order and texts, what went in."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from dsocr_core.base.formatting import plural
from dsocr_core.reading.input_parity import GLOBAL_HASH, IMAGE, LIMIT, TILES_HASH, inputs_words
from dsocr_core.reading.loops import find_loop
from dsocr_core.reading.markup import END_MARKER, PAGE, SCALE, Box, Span, block_text, page_texts
from dsocr_core.reading.parity_records import BoxPair, Difference, Evidence, InputLine, Kind, Tolerance, Where
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import SIDES, UNLIMITED, FinishReason, OcrResult
from dsocr_core.reading.text_diff import TEXT_LIMIT, Change, named, plain, squeezed, text_changes

_TEXT_KINDS: dict[str, Kind] = {"text": "text", "lines": "lines", "table": "table"}
_SHORT = 40
"""Characters of a text that is named in a sentence."""
Text = tuple[str, Sequence[Span]]
"""A text and its spans."""


# --- what went in, and how each side ended --------------------------------------------------------


def other_pages(a: OcrResult, b: OcrResult, lines: Iterable[InputLine]) -> Difference | None:
    """Why both sides did not read the same pages; None when nothing says so.

    Other image files are the same page where the pixels that went into the model are known to be equal.
    """
    words = None
    if len(a.sizes) != len(b.sizes):
        words = f"A read {plural(len(a.sizes), 'page')}, B {len(b.sizes)}"
    for number, (of_a, of_b) in enumerate(zip(a.sizes, b.sizes, strict=False), start=1):
        if words is None and of_a != of_b:
            which = "page sizes" if len(a.sizes) == 1 else f"sizes of page {number}"
            words = f"{which} differ, {of_a[0]} x {of_a[1]} and {of_b[0]} x {of_b[1]}"
    state = {line.name: line.state for line in lines}
    same_pixels = state[GLOBAL_HASH] == state[TILES_HASH] == "equal"
    if words is None and state[IMAGE] == "differs" and not same_pixels:
        words = "the image files differ"
    return None if words is None else Difference("pages", words)


def input_differences(lines: Iterable[InputLine], ends: Iterable[str | None], same: bool) -> list[Difference]:
    """Settings that are known to differ; the token limit is among them where a side ended at it.

    They never break the tolerance and are never identical, even where the outputs are the same: that shows
    that they do not matter on this page, not that the backends are the same.
    """
    cut = "length" in ends
    unequal = [
        line for line in lines if line.unequal or (line.name == LIMIT and line.state == "differs" and cut)
    ]
    if not unequal:
        return []
    evidence: Evidence = {"lines": ", ".join(line.name for line in unequal)}
    kind: Kind = "same_text" if same else "inputs"
    return [Difference(kind, inputs_words(unequal), within=True, evidence=evidence)]


def end_of(result: OcrResult) -> FinishReason | None:
    """Tell how a result ended, as its backend says or its text shows; None when neither does."""
    if result.finish_reason is None and result.text_raw.endswith(END_MARKER):
        return "eos"
    return result.finish_reason


def states(a: OcrResult | None, b: OcrResult | None) -> tuple[list[Difference], list[Difference]]:
    """Loops and token limits: those of one side, which are differences, and those that both share."""
    alone, shared = [], []
    for found in ([_loop(a), _loop(b)], [_cut(a), _cut(b)]):
        sides = [
            (side, item) for side, item in zip(SIDES, found, strict=True) if item is not None
        ]  # fmt: skip
        if not sides:
            continue
        (_, (kind, words, facts)), *more = sides
        words = "; ".join(f"{side.upper()} {item[1]}" for side, item in sides)
        if more:
            shared.append(Difference(kind, words, within=True, evidence=facts))
        else:
            alone.append(Difference(kind, words, where=Where(sides[0][0]), evidence=facts))
    return alone, shared


_State = tuple[Kind, str, Evidence]


def _loop(side: OcrResult | None) -> _State | None:
    loop = find_loop(side.text_raw) if side is not None and side.text_raw else None
    if side is None or loop is None:
        return None
    words = f"repeated {' '.join(loop.unit.split())[:60]!r} {loop.count} times from character {loop.start:,}"
    facts: Evidence = {"period": loop.period, "count": loop.count, "start": loop.start}
    return "loop", words, facts | {"unit": loop.unit[:500]}


def _cut(side: OcrResult | None) -> _State | None:
    if side is None or side.finish_reason != "length":
        return None
    limit = side.inputs.max_new_tokens if side.inputs is not None else side.request.max_new_tokens
    facts = {"tokens": side.new_tokens, "limit": None if limit == UNLIMITED else limit}
    count = "" if side.new_tokens is None else f" after {plural(side.new_tokens, 'token')}"
    return "truncated", f"has no end token{count}", {
        name: value for name, value in facts.items() if value is not None
    }  # fmt: skip


def unknown_end(a: FinishReason | None, b: FinishReason | None) -> list[Difference]:
    """Say how a side ended, where that is not known and the outputs are not the same."""
    which = [name for name, end in (("A", a), ("B", b)) if end is None]
    return [Difference("ended", f"of {' and '.join(which)}")] if which else []


# --- what came out --------------------------------------------------------------------------------


def output_differences(
    a: OcrResult, b: OcrResult, pairs: Sequence[BoxPair], tolerance: Tolerance
) -> list[Difference]:
    """Differences of two outputs that are not the same; of several pages of a prompt each by itself."""
    if a.request.form.pages is None and b.request.form.pages is None:
        found = _of_page((a.text_raw, a.blocks), (b.text_raw, b.blocks), pairs, tolerance, "")
        return found or [_OTHER_TOKENS]
    found = []
    if a.notes != b.notes:
        noted = (("A", a.notes), ("B", b.notes))
        found = [Difference("pages", f"{side}: {note}") for side, notes in noted for note in notes]
    sides = (page_texts(side.text_raw, side.blocks) for side in (a, b))
    nothing: Text = ("", ())
    for number, (of_a, of_b) in enumerate(zip_longest(*sides, fillvalue=nothing)):
        if clean_text(of_a[0]) != clean_text(of_b[0]):
            own = [pair for pair in pairs if pair.page == number - 1]
            place = f"page {number}: " if number else "before the first page: "
            found += _of_page(of_a, of_b, own, tolerance, place)
    return found or [_OTHER_TOKENS]


_OTHER_TOKENS = Difference("tokens", "text and boxes are equal", within=True)


def _of_page(
    a: Text, b: Text, pairs: Sequence[BoxPair], tolerance: Tolerance, place: str
) -> list[Difference]:
    order = [*_order(pairs, place)]
    return [*_boxes(pairs, tolerance, place), *order, *_texts((a, b), pairs, tolerance, place, bool(order))]


def _boxes(pairs: Sequence[BoxPair], tolerance: Tolerance, place: str) -> Iterator[Difference]:
    """Boxes without a partner, under another label, or moved. A lone box with text is text of one side."""
    odd = sum(pair.state not in ("matched", "moved") for pair in pairs)
    within = odd <= tolerance.boxes
    near: list[BoxPair] = []
    for pair in pairs:
        a, b = pair.a, pair.b
        if a is None or b is None:
            box = a or b
            assert box is not None
            side, kind = ("A", "extra") if a else ("B", "missing")
            where = Where("a", (box.index,)) if a else Where("b", (), (box.index,))
            words = f"{place}only {side} has {named_box(box)}{_quoted(box.text)}"
            lone: Kind = "extra" if kind == "extra" else "missing"
            yield Difference(lone, words, within and not box.text, where, {"label": box.label})
            continue
        where, shift = Where("both", (a.index,), (b.index,)), pair.shift_percent or 0.0
        facts: Evidence = {"iou": round(pair.iou or 0.0, 4), "shift_percent": round(shift, 3)}
        if pair.state == "relabelled":
            words = f"{place}box {a.index + 1} is {_label(a)} in A and {_label(b)} in B"
            labels: Evidence = {"label_a": a.label, "label_b": b.label}
            yield Difference("relabelled", words, within, where, facts | labels)
        if shift > tolerance.shift_percent:
            words = f"{place}{named_box(a)} by {shift:.3g} % of the page's side{_way(a, b)}"
            yield Difference("moved", words, within=False, where=where, evidence=facts)
        elif shift > 0:
            near.append(pair)
    if near:
        boxes = [(pair.a.index, pair.b.index) for pair in near if pair.a and pair.b]
        where = Where("both", tuple(a for a, _ in boxes), tuple(b for _, b in boxes))
        most = max(pair.shift_percent or 0.0 for pair in near)
        words = f"{place}{plural(len(near), 'box', 'boxes')} by at most {most:.3g} % of the page's side"
        yield Difference("moved", words, True, where, {"shift_percent": round(most, 3)})


def named_box(box: Box) -> str:
    """A box in words: `box 3 (text)`."""
    return f"box {box.index + 1} ({_label(box)})"


def _label(box: Box) -> str:
    return " ".join(box.label[:_SHORT].split())


def _quoted(text: str) -> str:
    text = " ".join(text.split())
    return f', "{text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"}"' if text else ""


def _way(a: Box, b: Box) -> str:
    """The direction, from B to A, in which a box moved as a whole."""
    (left, top, right, bottom), other = a.coordinates, b.coordinates
    across, down = (left + right - other[0] - other[2]) / 2, (top + bottom - other[1] - other[3]) / 2
    if max(abs(across), abs(down)) * 1000 < SCALE:  # less than a thousandth of the side
        return ""
    if abs(down) >= abs(across):
        return " down" if down > 0 else " up"
    return " right" if across > 0 else " left"


ORDER_LIMIT = 5000
"""Boxes whose order is compared: a page has a hundred, a hostile text may have any number."""


def _order(pairs: Sequence[BoxPair], place: str) -> Iterator[Difference]:
    """Fewest of A's boxes that have to be moved for B's order."""
    both = sorted((pair.a.index, pair.b.index) for pair in pairs if pair.a and pair.b)[:ORDER_LIMIT]
    in_place = set(rising([b for _, b in both]))
    moved = [boxes for number, boxes in enumerate(both) if number not in in_place]
    if moved:
        words = f"{place}{len(moved)} of {plural(len(both), 'box', 'boxes')}"
        where = Where("both", tuple(a for a, _ in moved), tuple(b for _, b in moved))
        yield Difference("order", words, True, where, {"moved": len(moved), "matched": len(both)})


def rising(values: Sequence[int]) -> list[int]:
    """Indices of the longest rising subsequence, in order."""
    ends: list[int] = []
    indices: list[int] = []
    before: list[int | None] = []
    for index, value in enumerate(values):
        length = bisect.bisect_left(ends, value)
        before.append(indices[length - 1] if length else None)
        ends[length : length + 1] = [value]
        indices[length : length + 1] = [index]
    chain: list[int] = []
    at = indices[-1] if indices else None
    while at is not None:
        chain.append(at)
        at = before[at]
    return chain[::-1]


# --- texts ----------------------------------------------------------------------------------------


def words_of(text_raw: str, spans: Sequence[Span]) -> str:
    """A text without the markup of its boxes, which are compared as boxes, and its end marker."""
    parts, position = [], 0
    for span in spans:
        if span.boxes:
            parts.append(text_raw[position : span.start])
            position = span.end
    return clean_text("".join((*parts, text_raw[position:])))


def loose_text(text_raw: str, spans: Sequence[Span], markup: bool = True) -> str:
    """Text that no box stands for: before the first block, after unreadable markup; `markup` cut off."""
    parts, position = [], 0
    for span in spans:
        parts.append(text_raw[position : span.start].replace(PAGE, ""))
        position = span.end + len(span.text)
        if markup and not span.closed:  # markup that the published pattern leaves in the text
            parts.append(text_raw[span.start : span.end])
        if not span.boxes:
            parts.append(block_text(span))
    parts.append(text_raw[position:].replace(PAGE, "").removesuffix(END_MARKER))
    return "\n".join(part.strip() for part in parts if part.strip())


def character_error_rate(text: str, reference: str) -> float:
    """Edits from `text` to `reference` per character of the reference; 0 for two empty texts.

    Only the first 100,000 characters of each are measured. May exceed 1 for a text that is too long.
    """
    text, reference = text[:TEXT_LIMIT], reference[:TEXT_LIMIT]
    if text == reference:
        return 0.0
    return Levenshtein.distance(text, reference) / max(1, len(reference))


def _texts(
    sides: tuple[Text, Text], pairs: Sequence[BoxPair], tolerance: Tolerance, place: str, reordered: bool
) -> list[Difference]:
    """Texts that differ, block by block; what a lone box holds is that box's difference."""
    a, b = sides
    words = (words_of(*a), words_of(*b))
    rate = character_error_rate(*words)
    if rate > 0 and tolerance.character_error_rate > 0:  # what a page shows may differ by less
        rate = min(rate, character_error_rate(*(squeezed(plain(side)) for side in words)))
    within = rate <= tolerance.character_error_rate
    found, spelt = list[Difference](), list[Where]()
    both = [(pair.a, pair.b) for pair in pairs if pair.a and pair.b and pair.a.text != pair.b.text]
    exchanged = bool(both) and Counter(x.text for x, _ in both) == Counter(y.text for _, y in both)
    blocks: dict[tuple[str, str], Where] = {}
    for x, y in both:  # boxes of one block have one text
        where = blocks.get((x.text, y.text), Where())
        blocks[x.text, y.text] = Where("both", (*where.boxes_a, x.index), (*where.boxes_b, y.index))
    if exchanged:
        found.append(Difference("exchanged", f"{place}of {len(both)} boxes", where=_joined(blocks.values())))
        blocks = {}
    loose = (loose_text(*a, markup=False), loose_text(*b, markup=False))
    if loose[0] != loose[1]:
        blocks = {loose: Where(), **blocks}
    for texts, where in blocks.items():
        name = named_box(next(x for x, _ in both if x.index in where.boxes_a)) if where.boxes_a else ""
        changes = text_changes(*texts)
        found += _changed(
            (place, name or ("outside of boxes" if pairs else "")), where, texts, changes, within
        )
        spelt += [] if changes else [where]
    found.sort(key=lambda item: not item.evidence.get("digits"))
    begun = [
        " ".join(text[span.start : span.end] for span in spans if not span.closed) for text, spans in (a, b)
    ]
    if begun[0] != begun[1]:
        shown = " and ".join(_quoted(text).removeprefix(", ") or "none" for text in begun)
        found.append(
            Difference("text", f"{place}markup that is cut off, {shown}", within, texts=(begun[0], begun[1]))
        )
    if words[0][TEXT_LIMIT:] != words[1][TEXT_LIMIT:]:
        found.append(Difference("text", f"{place}beyond the characters that are measured"))
    lone = any(box.text for pair in pairs if not (pair.a and pair.b) for box in (pair.a, pair.b) if box)
    if spelt or (words[0] != words[1] and not (found or lone or reordered)):
        found.append(Difference("spelling", f"{place}a reader sees the same", True, _joined(spelt)))
    return found


def _joined(wheres: Iterable[Where]) -> Where:
    wheres = list(wheres)
    of_a = tuple(box for where in wheres for box in where.boxes_a)
    return Where("both", of_a, tuple(box for where in wheres for box in where.boxes_b))


def _changed(
    name: tuple[str, str], where: Where, texts: tuple[str, str], changes: Sequence[Change], within: bool
) -> Iterator[Difference]:
    """A difference for each kind of change of a block; `name` is its page and its box."""
    distance = Levenshtein.distance(*(text[:TEXT_LIMIT] for text in texts)) if changes else 0
    rate = round(distance / max(1, len(texts[1])), 4)
    for change, kind in _TEXT_KINDS.items():
        if own := [each for each in changes if each.kind == change]:
            what = named(own) if kind == "text" else plural(len(own), "place")
            facts: Evidence = {"distance": distance, "error_rate": rate, "digits": own[0].has_digit}
            yield Difference(
                kind, name[0] + ", ".join(filter(None, (name[1], what))), within, where, facts, texts
            )
