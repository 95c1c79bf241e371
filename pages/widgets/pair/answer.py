"""The sentence on top of a pair: what differs, by its values, who is right where that is known, the cause."""

from __future__ import annotations

from collections.abc import Sequence

from dsocr_core.base.formatting import duration, percent, plural
from dsocr_core.reading.parity_records import NOT_KNOWN, SETTINGS, Difference
from dsocr_core.reading.text_diff import Change, text_changes
from pages.widgets.pair.shown import PairView
from pages.widgets.shared.labels import Fact

_NOTHING = "nothing"
_SHOWN = 48
"""Characters of a reading that the sentence shows."""
_ENDS = ".,:;"


def answer(shown: PairView) -> str:
    """Summarise the page in a sentence; empty without two results."""
    report = shown.report
    if report is None:
        return ""
    outputs = without_settings(report.differences)
    if report.verdict == "not_comparable":
        return " ".join(_sentence(reason) for reason in report.reasons)
    if not outputs:
        return " ".join(["Both read the same.", *(_other_settings(report.differences))])
    first = main_difference(outputs)
    return " ".join([_values(shown, first, outputs), *_more(first, outputs), *cause(shown)])


def without_settings(differences: Sequence[Difference]) -> list[Difference]:
    """Keep the differences of outputs, not of settings."""
    return [item for item in differences if item.kind not in SETTINGS]


def main_difference(outputs: Sequence[Difference]) -> Difference:
    """The difference named first: a text that differs in a block, else the gravest."""
    return next((item for item in outputs if item.texts is not None and item.boxes_a), outputs[0])


def _values(shown: PairView, item: Difference, outputs: Sequence[Difference]) -> str:
    """The first change of a text with both readings and what the page says there; else what differs."""
    same = sum(each.kind == item.kind for each in outputs)
    if item.kind in _ALONE and same > 1:
        return (
            f"{same} boxes are {_ALONE[item.kind]}: {item.words.partition(' has ')[2]} and {same - 1} more."
        )
    changes = text_changes(*item.texts) if item.texts is not None else []
    if not changes or changes[0].kind != "text":
        return _sentence(item.words if item.kind in _ALONE else item.sentence)
    a, b = _readings(changes[0])
    said = f"A reads {_quoted(a)}, B {_quoted(b)}."
    return f"{said} {right}" if (right := _right(shown, item, changes[0])) else said


_ALONE = {"missing": "only in B", "extra": "only in A"}


def _readings(change: Change) -> tuple[str, str]:
    """Both readings without the mark that both end with, in the words of the page."""
    a, b = change.readings
    while len(a) > 1 and len(b) > 1 and a[-1] == b[-1] and a[-1] in _ENDS:
        a, b = a[:-1], b[:-1]
    a, b = (text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…" for text in (a, b))
    return a or _NOTHING, b or _NOTHING


def _quoted(reading: str) -> str:
    return f"“{reading}”" if " " in reading else reading


def readings_of(item: Difference) -> tuple[str, str]:
    """Readings of A and B where a text differs first, or of a box that one side has alone; else empty."""
    if item.kind in _ALONE and (alone := item.words.partition("), ")[2].strip('"')):
        return (alone, _NOTHING) if item.kind == "extra" else (_NOTHING, alone)
    changes = text_changes(*item.texts) if item.texts is not None else []
    return _readings(changes[0]) if changes and changes[0].kind == "text" else ("", "")


def _right(shown: PairView, item: Difference, change: Change) -> str:
    """Say who is right, where the page's own text is known."""
    box = next(iter(item.boxes_a), None)
    row = None if box is None else shown.row_of(box, None)
    block = None if row is None else shown.true_block(shown.rows[row])
    if block is None or item.texts is None:
        return ""
    right = [block.says(text) for text in item.texts]
    if sum(right) == 1:
        letter, reading = ("A", _readings(change)[0]) if right[0] else ("B", _readings(change)[1])
        return f"The page says {_quoted(reading)}: {letter} is right."
    # The block may be misread elsewhere by both: here the one counts whose change the page does not ask for.
    wrong = [{one.a for one in text_changes(text, block.text)} for text in item.texts]
    at = [change.a in wrong[0], change.b in wrong[1]]
    if sum(at) == 1:
        letter, reading = ("B", _readings(change)[1]) if at[0] else ("A", _readings(change)[0])
        return f"The page says {_quoted(reading)}: {letter} is right."
    return "Neither is what the page says." if all(at) else ""


def _more(first: Difference, outputs: Sequence[Difference]) -> list[str]:
    rest = len(outputs) - (sum(item.kind == first.kind for item in outputs) if first.kind in _ALONE else 1)
    return [f"{plural(rest, 'more difference')}."] if rest else []


def _other_settings(differences: tuple[Difference, ...]) -> list[str]:
    return [f"The settings differ: {item.words}." for item in differences if item.kind in SETTINGS][:1]


def cause(shown: PairView) -> list[str]:
    """The surest cause, as a sentence: likely, unless it was reproduced."""
    if not shown.causes:
        return []
    first = shown.causes[0]
    likely = "Cause" if first.name == "reproduced" else "Likely cause"
    return [_sentence(f"{likely}: {first.words.partition(';')[0]}")]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def facts(shown: PairView) -> list[Fact]:
    """The figures under the sentence."""
    report = shown.report
    found: list[Fact] = []
    if report is not None:
        equal = "=" if report.boxes_a == report.boxes_b else "≠"
        boxes = f"{report.boxes_a} {equal} {report.boxes_b}" if report.boxes_known else NOT_KNOWN
        found = [("boxes", boxes), ("CER", percent(report.character_error_rate * 100))]
        if report.max_coordinate_difference_percent:
            found.append(("largest shift", percent(report.max_coordinate_difference_percent)))
        if report.first_divergence is not None:
            found.append(("first different token", f"{report.first_divergence.index:,}"))
    times = {side: result.total_ms for side, result in shown.results.items() if result.timings}
    return found + [(side.upper(), duration(ms)) for side, ms in times.items()]
