"""Differences of two outputs, each once: how they ended, boxes, their order and texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from rapidfuzz.distance import Levenshtein

from dsocr_core.base.formatting import plural, shortened
from dsocr_core.reading.markup import END_MARKER, PAGE, Box, Span, block_text
from dsocr_core.reading.parity_records import BoxPair, Difference, Tolerance
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import SIDES, OcrResult, Side
from dsocr_core.reading.text_diff import TEXT_LIMIT, ChangeKind, named, plain, squeezed, text_changes

_SHORT = 40  # characters of a text that is named in a sentence
Pairs = Sequence[BoxPair]


def one_sided(a: OcrResult | None, b: OcrResult | None) -> list[Difference]:
    """Token limit at which only one side ended. A limit of both is no difference."""
    cut = [(side, of) for side, of in zip(SIDES, (a, b), strict=True) if of and of.finish_reason == "length"]
    if len(cut) != 1:
        return []
    [(side, result)] = cut
    count = "" if result.new_tokens is None else f" after {plural(result.new_tokens, 'token')}"
    return [Difference("truncated", f"{side.upper()} has no end token{count}", where=side)]


def output_differences(a: OcrResult, b: OcrResult, pairs: Pairs, tolerance: Tolerance) -> list[Difference]:
    """Differences of two outputs that are not the same."""
    found: list[Difference] = []
    if a.notes != b.notes:
        notes = (f"{side}: {note}" for side, of in (("A", a), ("B", b)) for note in of.notes)
        found = [Difference("pages", note) for note in notes]
    found += [*_boxes(pairs, tolerance), *_texts(a, b, pairs, tolerance)]
    return found or [Difference("tokens", "text and boxes are equal", within=True)]


def _boxes(pairs: Pairs, tolerance: Tolerance) -> Iterator[Difference]:
    """Boxes without a partner, under another label, or moved. A lone box with text is text of one side."""
    within = sum(pair.state not in ("matched", "moved") for pair in pairs) <= tolerance.boxes
    near: list[BoxPair] = []
    for pair in pairs:
        if (box := pair.lone) is not None:
            kind, side = ("extra", "A") if pair.a else ("missing", "B")
            quoted = f', "{_short(box.text)}"' if box.text.strip() else ""
            words = f"only {side} has {_named(box)}{quoted}"
            yield _of(kind, words, [pair], within and not box.text, label=box.label)
        elif pair.a and pair.b:
            shift = pair.shift_percent or 0.0
            facts = {"iou": round(pair.iou or 0.0, 4), "shift_percent": round(shift, 3)}
            if pair.state == "relabelled":
                was, now = _short(pair.a.label), _short(pair.b.label)
                words = f"box {pair.a.index + 1} is {was} in A and {now} in B"
                labels = {"label_a": pair.a.label, "label_b": pair.b.label}
                yield _of("relabelled", words, [pair], within, **facts, **labels)
            if shift > tolerance.shift_percent:
                words = f"{_named(pair.a)} by {shift:.3g} % of the page's side"
                yield _of("moved", words, [pair], False, **facts)
            elif shift > 0:
                near.append(pair)
    if near:
        most = max(pair.shift_percent or 0.0 for pair in near)
        words = f"{plural(len(near), 'box', 'boxes')} by at most {most:.3g} % of the page's side"
        yield _of("moved", words, near, True, shift_percent=round(most, 3))


def _of(kind: Any, words: str, pairs: Pairs, within: bool, **evidence: int | float | str) -> Difference:
    """A difference of pairs' boxes, or of one side's boxes."""
    of_a = tuple(pair.a.index for pair in pairs if pair.a)
    of_b = tuple(pair.b.index for pair in pairs if pair.b)
    where: Side | Literal["both"] = "both" if bool(of_a) == bool(of_b) else "a" if of_a else "b"
    return Difference(kind, words, within, where, of_a, of_b, evidence)


def _named(box: Box) -> str:
    return f"box {box.index + 1} ({_short(box.label)})"


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _SHORT)


# --- texts ----------------------------------------------------------------------------------------


def text_without_markup(result: OcrResult) -> str:
    """The text without its end marker and the markup of boxes, which are compared as boxes."""
    text, parts, position = result.text_raw, [], 0
    for span in result.blocks:
        if span.boxes:
            parts.append(text[position : span.start])
            position = span.end
    return clean_text("".join((*parts, text[position:])))


def loose_text(text_raw: str, spans: Sequence[Span]) -> str:
    """Text that no box stands for: before the first block, after unreadable markup."""
    parts, position = [], 0
    for span in spans:
        parts += [text_raw[position : span.start], "" if span.boxes else block_text(span)]
        position = span.end + len(span.text)
    parts.append(text_raw[position:].removesuffix(END_MARKER))
    return "\n".join(part for each in parts if (part := each.replace(PAGE, "").strip()))


def character_error_rate(text: str, reference: str) -> float:
    """Edits from `text` to `reference` per character of it, of the first 100,000 of each; may exceed 1."""
    reference = reference[:TEXT_LIMIT]
    return Levenshtein.distance(text[:TEXT_LIMIT], reference) / max(1, len(reference))


def _texts(a: OcrResult, b: OcrResult, pairs: Pairs, tolerance: Tolerance) -> list[Difference]:
    """Texts that differ, block by block. The text of a lone box belongs to its box."""
    words = [text_without_markup(side) for side in (a, b)]
    rate = character_error_rate(*words)
    if rate > 0 and tolerance.character_error_rate > 0:  # what a page shows may differ by less
        rate = min(rate, character_error_rate(*(squeezed(plain(side)) for side in words)))
    within = rate <= tolerance.character_error_rate
    loose = (loose_text(a.text_raw, a.blocks), loose_text(b.text_raw, b.blocks))
    blocks: dict[tuple[str, str], list[BoxPair]] = {loose: []}
    for pair in pairs:  # boxes of one block have one text
        if pair.a and pair.b:
            blocks.setdefault((pair.a.text, pair.b.text), []).append(pair)
    found, spelt, spelling = list[Difference](), list[BoxPair](), False
    for texts, own in blocks.items():
        if texts[0] == texts[1]:
            continue
        if not (changes := text_changes(*texts)):
            spelt, spelling = [*spelt, *own], True
        box = own[0].a if own else None
        name = _named(box) if box else "outside of boxes" if pairs else ""
        for kind in get_args(ChangeKind):
            if some := [each for each in changes if each.kind == kind]:
                what = named(some) if kind == "text" else plural(len(some), "place")
                said = ", ".join(filter(None, (name, what)))
                facts = {"error_rate": round(character_error_rate(*texts), 4), "digits": some[0].has_digit}
                found.append(replace(_of(kind, said, own, within, **facts), texts=texts))
    found.sort(key=lambda item: not item.evidence["digits"])
    if words[0][TEXT_LIMIT:] != words[1][TEXT_LIMIT:]:
        found.append(Difference("text", "beyond the characters that are measured"))
    places = [pair.b.index for pair in pairs if pair.a and pair.b]
    if places != sorted(places):
        found.append(Difference("order", f"of {len(places)} boxes that both have", within=True))
    lone = any(pair.lone and pair.lone.text for pair in pairs)
    if spelling or (words[0] != words[1] and not (found or lone)):
        found.append(_of("spelling", "a reader sees the same", spelt, True))
    return found
