"""Findings of two outputs that differ: boxes, their order and texts, words."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.markup import END_MARKER, PAGE, SCALE, Box, Span, block_text
from dsocr_core.reading.parity_records import BoxPair, Tolerance
from dsocr_core.reading.text_diff import Change, plain, squeezed, text_changes
from dsocr_core.reading.verdict import Finding, box_findings, text_findings

OTHER_TOKENS = "text and boxes are equal, written with other tokens"
_SAME_WAY = 0.8
"""Share of boxes that have moved one way, from which on all are said to have moved."""


def output_findings(
    pairs: Sequence[BoxPair],
    words: tuple[str, str],
    loose: tuple[str, str],
    text: tuple[float, bool],
    tolerance: Tolerance,
) -> list[Finding]:
    """Findings of two outputs that are not the same, those beyond tolerance first.

    `words` are both texts without markup, `loose` what of them no box stands for, `text` the character error
    rate and whether they differ beyond the characters that are measured.
    """
    rate, beyond_limit = text
    if rate > 0 and tolerance.character_error_rate > 0:  # what a page shows may differ by less
        shown = [squeezed(plain(side)) for side in words]
        rate = min(rate, Levenshtein.distance(*shown) / max(1, len(shown[1])))
    found = [
        *_box_findings(pairs, tolerance),
        *_exchanges(pairs),
        *text_findings(_changes(pairs, words, loose), (text[0], rate), beyond_limit, tolerance),
    ]
    return sorted(found, key=lambda finding: finding.within) or [Finding(OTHER_TOKENS, within=True)]


def _changes(pairs: Sequence[BoxPair], words: tuple[str, str], loose: tuple[str, str]) -> list[Change]:
    """Changes block by block; of the whole texts where a block with text has no partner."""
    blocks = dict.fromkeys(tuple(box.text if box else "" for box in (pair.a, pair.b)) for pair in pairs)
    if not blocks or any(pair.a is None or pair.b is None for pair in pairs if _text(pair)):
        return text_changes(*words)
    return [change for a, b in (loose, *blocks) if a != b for change in text_changes(a, b)]


def _text(pair: BoxPair) -> str:
    return "".join(box.text for box in (pair.a, pair.b) if box)


def loose_text(text_raw: str, spans: Sequence[Span]) -> str:
    """Text that no box stands for: before the first block, markup cut off, what follows unreadable markup."""
    parts, position = [], 0
    for span in spans:
        parts.append(text_raw[position : span.start].replace(PAGE, ""))
        position = span.end + len(span.text)
        if not span.closed:  # markup that the published pattern leaves in the text
            parts.append(text_raw[span.start : span.end])
        if not span.boxes:
            parts.append(block_text(span))
    parts.append(text_raw[position:].replace(PAGE, "").removesuffix(END_MARKER))
    return "\n".join(part.strip() for part in parts if part.strip())


# --- boxes ------------------------------------------------------------------------------------------


def _box_findings(pairs: Sequence[BoxPair], tolerance: Tolerance) -> list[Finding]:
    states = [pair.state for pair in pairs]
    alone = [box for pair in pairs if pair.a is None or pair.b is None if (box := pair.a or pair.b)]
    counts = (len(pairs) - states.count("only_b"), len(pairs) - states.count("only_a"))
    found = box_findings(counts, len(alone), states.count("relabelled"), _shift(pairs), tolerance)
    with_text = [box.text for box in alone if box.text]
    if with_text:
        which = "a box" if len(with_text) == 1 else f"{len(with_text)} boxes"
        words = f"{which} with text on one side alone: {_short(with_text[0])}"
        found.insert(0, Finding(words, within=False))
    return found


def _short(text: str) -> str:
    text = " ".join(text.split())
    return f'"{text if len(text) <= 40 else text[:39] + "…"}"'


def _shift(pairs: Sequence[BoxPair]) -> tuple[float, str] | None:
    """The largest shift in percent of the page's side, and how the boxes moved in words."""
    matched = [(pair.a, pair.b, pair.shift_percent) for pair in pairs if pair.a and pair.b]
    shifts = [shift for *_, shift in matched if shift is not None]
    if not any(shifts):
        return None
    largest, median = max(shifts), statistics.median(shifts)
    way = _way([(a, b) for a, b, _ in matched])
    if way is not None and len(shifts) > 1:
        more = "" if largest < 1.2 * median else f", one by {largest:.3g} %"
        return largest, f"all {len(shifts)} boxes moved by {median:.3g} % {way}{more}"
    moved = [shift for shift in shifts if shift > 0]
    more = f", {len(moved)} boxes by {statistics.median(moved):.3g} % at the median" if len(moved) > 1 else ""
    return largest, f"a box is off by {largest:.3g} % of the page's side{more}"


def _way(pairs: Sequence[tuple[Box, Box]]) -> str | None:
    """The direction, from B to A, in which nearly all boxes moved as a whole; None where there is none."""
    ways: Counter[str] = Counter()
    for a, b in pairs:
        across = (a.coordinates[0] + a.coordinates[2] - b.coordinates[0] - b.coordinates[2]) / 2
        down = (a.coordinates[1] + a.coordinates[3] - b.coordinates[1] - b.coordinates[3]) / 2
        if max(abs(across), abs(down)) * 1000 < SCALE:  # less than a thousandth of the side
            continue
        ways[
            ("down" if down > 0 else "up") if abs(down) >= abs(across) else "right" if across > 0 else "left"
        ] += 1
    if not ways:
        return None
    way, count = ways.most_common(1)[0]
    return way if count >= _SAME_WAY * len(pairs) else None


def _exchanges(pairs: Sequence[BoxPair]) -> list[Finding]:
    """Texts that stand in each other's boxes, and boxes that come in another order."""
    matched = [(pair.a, pair.b) for pair in pairs if pair.a and pair.b]
    found = []
    swapped = [(a.text, b.text) for a, b in matched if a.text != b.text]
    if swapped and Counter(a for a, _ in swapped) == Counter(b for _, b in swapped):
        found.append(Finding(f"the texts of {len(swapped)} boxes are exchanged", within=False))
    numbers = [b.index for _, b in sorted(matched, key=lambda pair: pair[0].index)]
    moved = len(numbers) - _longest_rising(numbers)
    if moved:
        found.append(Finding(f"{moved + 1} boxes come in another order", within=True))
    return found


def _longest_rising(numbers: Sequence[int]) -> int:
    """Length of the longest rising subsequence."""
    tails: list[int] = []
    for number in numbers:
        at = bisect.bisect_left(tails, number)
        tails[at : at + 1] = [number]
    return len(tails)
