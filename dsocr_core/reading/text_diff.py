"""Two texts compared as a page shows them: blanks and the spelling of markup are no difference.

Every other change is one; nothing here judges whether it matters. Each expression is linear in the length of
its text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rapidfuzz.distance import Levenshtein

from dsocr_core.base.formatting import shortened

TEXT_LIMIT = 100_000
"""Characters of each text that are compared: the distance is quadratic in what differs."""
CELL, ROW, HEADING, END = "\ue000", "\ue001", "\ue002", "\ue003"
"""Marks of a table's cells and rows, and of a heading's start and end, in a plain text."""
_ITEM = 0xE010
"""Code point of the mark of a list's item, to which its depth is added."""
_STRUCTURE = re.compile("[\ue000-\ue003\ue010-\ue01f]")
_LIST = re.compile("[\ue002\ue003\ue010-\ue01f]")
_SHOWN = 60
"""Characters of a change that a sentence shows."""

_SAME = str.maketrans({
    **dict.fromkeys("‐‑−–‒—―", "-"), **dict.fromkeys("’‘ʼ‚‹›′", "'"), **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("✓✔✅☒", "☑"), "□": "☐", "∼": "~", "º": "°", "″": '"', "⁄": "/", "µ": "μ",
})  # fmt: skip
_UNSEEN = re.compile("[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe0f\ufeff]")
_HTML_LIST = re.compile(r"<(/?)(ul|ol|li|h[1-6]|p|br|div)\b[^<>]*>", re.IGNORECASE)
_RULE = re.compile(r"(?:[-*_=][ \t]*){3,}|(?:```|~~~)\w*")
_BAR_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?")
_BAR = re.compile(r"(?<!\\)\|")
_QUOTE = re.compile(r"^(?:>[ \t]+)+(?![\d.,]+$)")
_HEADING, _CLOSING, _UNDERLINE = re.compile(r"#{1,6}[ \t]+"), re.compile("[ ]#+$"), re.compile("={3,}")
_BULLET = re.compile(r"[-*+•◦▪·][ \t]+(?![\d.,]+$)")
_NUMBER = re.compile(r"\(?(\d{1,3}|[a-z]|[ivxlc]{2,6})[.)](?=\s|[^\W\d])[ \t]*")
_TICK = re.compile(r"(?:\[[ \t]?([ xX])[ \t]?\]|[☐☑☒□✓✔✅])(?=\s|$)")
_HTML_CELL = re.compile(r"<(t[dhr])\b([^<>]*)>", re.IGNORECASE)
_SPAN = re.compile(r"\b((?:col|row)span)\s?=\s?[\"']?([2-9]\d*)", re.IGNORECASE)
_EMPTY_CELLS = re.compile(f"(?:{CELL}[ ]*)+(?=[{ROW}\n]|$)")
_ORDINAL = re.compile(r"(?<=\d)<sup>([a-z]{1,3})</sup>", re.IGNORECASE)
_SCRIPT = re.compile(r"<(sup|sub)>([^<>]{1,40})</\1>", re.IGNORECASE)
_RAISED, _LOWERED = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+"), re.compile("[\u2080-\u208e]+")
_FRACTION = re.compile("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_COMMENT = re.compile(r"<!--[^<>]*-->")
_STRUCK = re.compile(r"</?(?:s|del|strike)>", re.IGNORECASE)
_INLINE_TAG = re.compile(r"</?(?:b|i|em|strong|u|span|code)(?:\s[^<>]*)?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s+[a-zA-Z-]+(?:\s?=[^<>]*)?)?\s?/?>")
_LINK = re.compile(r"(?<!!)\[\^?([^\[\]\n]*)\]\([^()\s]*\)|<((?:https?://|mailto:)[^<>\s]+)>")
_NOTE = re.compile(r"\[\^(\w{1,9})\]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-[ \t]?\n[ \t]?(?=[^\W\d_A-Z])")
_LEADER = re.compile(r"([._])(?: ?\1){3,}")
_EMPHASIS = re.compile(r"\\([_*#$%&|.()\[\]])|(?<![\w*])[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?![\w*])|\*\*")
_DASHES, _BY = re.compile(r"(?<!-)-{2,3}(?!-)"), re.compile(r"(?<=\d) ?[xX] ?(?=\d)")
_TOKEN = re.compile(r"[^\W\d_]+|\d[\d.,:/'-]*|[^\w\s]|_")
_NUMBERS_APART = re.compile(r"(?<=\d)\s+(?=\d)")

_LATEX = {
    "frac dfrac tfrac cfrac": r"\frac", "times": "×", "cdot": "·", "leq le leqslant": "≤",
    "geq ge geqslant": "≥", "pm": "±", "neq ne": "≠", "approx": "≈", "sim": "~", "in": "∈", "circ": "°",
    "infty": "∞", "to rightarrow": "→", "sum": "Σ", "sqrt": "√", "bmod pmod mod": "mod", "alpha": "α",
    "beta": "β", "gamma": "γ", "delta": "δ", "lambda": "λ", "mu": "μ", "pi": "π", "sigma": "σ", "prime": "'",
    "mathrm mathbf text textbf textit operatorname left right displaystyle quad qquad": "",
}  # fmt: skip
_COMMANDS = {f"\\{name}": sign for names, sign in _LATEX.items() for name in names.split()}
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_THIN = re.compile(r"\\[,;:! ]")
_MATH = re.compile(
    r"\\{1,2}[\[\]()]|\$\$"
    r"|\\(?:begin|end)\{(?:equation|align|gather)\*?\}|\\label\{[^{}]*\}"
)
_DOLLARS = re.compile(r"(?<!\\)\$(?:(\S|\S[^$]{0,400}[^\s$\\])\$(?![\d.])| ([^$\n]{1,400}) \$)")
_GROUP = r"(?:\{([^{}]*)\}|\s?(\w))"
_LATEX_FRACTION = re.compile(rf"(\d)?\\frac\s?{_GROUP}{_GROUP}")
_LATEX_SCRIPT = re.compile(r"([\^_])\{([^{}]*)\}")


def plain(text: str) -> str:
    """A text as a rendered page shows it, with marks of list items, headings, cells and rows."""
    text = _html_blocks(_COMMENT.sub(" ", text[:TEXT_LIMIT]))
    text = _INLINE_TAG.sub("", _STRUCK.sub("~~", _SCRIPT.sub(_script, _ORDINAL.sub(r"\1", text))))
    text = _LINK.sub(lambda match: match[2] or match[1], _NOTE.sub(r"^\1", text))
    text = _COMMAND.sub(lambda match: _COMMANDS.get(match[0], match[0]), text)
    text = _DOLLARS.sub(lambda match: match[1] or match[2], _MATH.sub("", _THIN.sub(" ", text)))
    text = "\n".join(_blocks(text.split("\n")))
    text = html.unescape(_TAG.sub(" ", text))
    if not text.isascii():
        text = _FRACTION.sub(" ", _RAISED.sub(_raised, text.translate(_SAME)))
        text = _LOWERED.sub(lambda match: "_" + _grouped(match[0]), text)
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text).translate(_SAME))
    text = _LATEX_FRACTION.sub(_fraction, _HYPHEN.sub("", text))
    text = _LATEX_SCRIPT.sub(lambda match: match[1] + _grouped(match[2]), text)
    text = _EMPHASIS.sub(r"\1", text.replace("{", "").replace("}", ""))
    text = _BY.sub("×", _DASHES.sub("-", _EMPTY_CELLS.sub("", text)))
    return _LEADER.sub(r"\1\1\1", text).replace("^°", "°").replace("^'", "'")


def _html_blocks(text: str) -> str:
    """Lists, headings and paragraphs of HTML as lines of Markdown."""
    lists: list[list[int]] = []  # of each open list: 1 where it is numbered, and the number of its last item

    def line(match: re.Match[str]) -> str:
        closed, name = bool(match[1]), match[2].lower()
        if name in ("ul", "ol"):
            if not closed:
                lists.append([int(name == "ol"), 0])
            elif lists:
                lists.pop()
            return "\n"
        if name == "br":
            return " "
        if closed or name in ("p", "div"):
            return "\n"
        if name != "li":
            return "\n# "
        numbered, count = lists[-1] if lists else (0, 0)
        if lists:
            lists[-1][1] += 1
        indent = "  " * min(len(lists) - 1, 8)
        return f"\n{indent}{count + 1}. " if numbered else f"\n{indent}- "

    return _HTML_LIST.sub(line, text) if "<" in text else text


def _blocks(lines: list[str]) -> list[str]:
    """Lines with the marks of items, headings, rows and cells; lines that only draw a rule are left out."""
    has_bars = any("|" in line and _BAR_RULE.fullmatch(line.strip()) for line in lines)
    found, indents, in_list = [], list[int](), True
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        body = _QUOTE.sub("", line.strip())
        if not body:
            in_list = True  # a numbered line is an item after a blank line or another item
            found.append("")
            continue
        indent = len(line) - len(line.lstrip())
        if has_bars and "|" in body:
            if not _BAR_RULE.fullmatch(body):
                found.append(f"{ROW}{CELL}{CELL.join(_BAR.split(body.strip('|')))}".replace("\\|", "|"))
            continue
        if _RULE.fullmatch(body):
            continue
        heading = _HEADING.match(body)
        if heading or _UNDERLINE.fullmatch(following.strip()):
            found.append(f"{HEADING}{_CLOSING.sub('', body[heading.end() if heading else 0 :])}{END}")
            in_list, indents = True, []
            continue
        item, number = _BULLET.match(body), _NUMBER.match(body) if in_list else None
        tick = _TICK.match(body, item.end() if item else 0)
        in_list = bool(item or number or tick)
        if in_list:
            while indents and indent < indents[-1]:
                indents.pop()
            if not indents or indent > indents[-1] + 1:
                indents.append(indent)
            start = f"{number[1]}. " if number else ""
            body = body[number.end() if number else item.end() if item else 0 :]
            body = f"{chr(_ITEM + min(len(indents), 15))}{start}{body}"
        elif indent == 0:
            indents = []
        found.append(_TICK.sub(_ticked, body))
    return [_HTML_CELL.sub(_cell, line) for line in found]


def _cell(match: re.Match[str]) -> str:
    spans = "".join(map("".join, _SPAN.findall(match[2].lower())))
    return f" {ROW if match[1].lower() == 'tr' else CELL}{spans} "


def _ticked(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else "☐" if match[1] == " " else "☑"


def _script(match: re.Match[str]) -> str:
    return ("^" if match[1].lower() == "sup" else "_") + _grouped(match[2])


def _raised(match: re.Match[str]) -> str:
    return "^" + _grouped(unicodedata.normalize("NFKC", match[0]))


def _grouped(script: str) -> str:
    script = unicodedata.normalize("NFKC", script).translate(_SAME).strip()
    return script if len(script) < 2 or set(script) == {"'"} else f"({script})"


def _fraction(match: re.Match[str]) -> str:
    over, under = (match[2] or match[3] or "").strip(), (match[4] or match[5] or "").strip()
    over, under = (part if part.isalnum() else f"({part})" for part in (over, under))
    return f"{match[1]} {over}/{under}" if match[1] else f"{over}/{under}"


def squeezed(text: str) -> str:
    """A plain text without blanks, but for those that hold two numbers apart."""
    return "".join(_NUMBERS_APART.sub("\0", text).split()).replace("\0", " ")


ChangeKind = Literal["text", "lines", "table"]
_KIND_WORDS: dict[ChangeKind, str] = {
    "lines": "a list's or heading's line end",
    "table": "a table's rows or cells",
}


@dataclass(frozen=True)
class Change:
    """Words, or marks of lists, headings and tables, that are not the same; an absent side is empty."""

    a: str
    b: str
    kind: ChangeKind = "text"

    @property
    def has_digit(self) -> bool:
        """True where a digit or another numeral is on either side."""
        return any(map(str.isnumeric, self.a + self.b))

    @property
    def words(self) -> str:
        """The change for people: `1.20 -> 0.80`."""
        if self.kind in _KIND_WORDS:
            return _KIND_WORDS[self.kind]
        return " -> ".join(_shown(side) for side in (self.a, self.b))


def _shown(side: str) -> str:
    return shortened(" ".join(_STRUCTURE.sub(" ", side).split()) or "(nothing)", _SHOWN)


def named(changes: Sequence[Change], most: int = 5) -> str:
    """The first changes for people, each once, and how many more there are."""
    words = list(dict.fromkeys(change.words for change in changes))
    rest = len(words) - most
    return "; ".join(words[:most]) + (f"; and {rest} more" if rest > 0 else "")


def text_changes(a: str, b: str) -> list[Change]:
    """The changes from A to B, those with digits first; none where only the spelling of markup differs."""
    a, b = plain(a), plain(b)
    if squeezed(a) == squeezed(b):
        return []
    left, right = (list(_TOKEN.finditer(text)) for text in (a, b))
    found: list[Change] = []
    steps = Levenshtein.opcodes([match[0] for match in left], [match[0] for match in right])
    for differs, group in groupby(steps, key=lambda step: step.tag != "equal"):
        together = list(group)
        if differs:
            of_a = left[together[0].src_start : together[-1].src_end]
            of_b = right[together[0].dest_start : together[-1].dest_end]
            found.append(_change(a, of_a, b, of_b))
    # Tokens may be equal where a blank between two numbers is not.
    return sorted(found, key=lambda change: (change.kind != "text", not change.has_digit)) or [Change(a, b)]


def _change(a: str, left: list[re.Match[str]], b: str, right: list[re.Match[str]]) -> Change:
    tokens = [match[0] for match in (*left, *right)]
    if any(map(_LIST.match, tokens)) and all(_LIST.match(token) or token in "-*+•" for token in tokens):
        kind: ChangeKind = "lines"
    else:
        kind = "table" if all(map(_STRUCTURE.match, tokens)) else "text"
    of_a, of_b = (text[m[0].start() : m[-1].end()] if m else "" for text, m in ((a, left), (b, right)))
    return Change(of_a, of_b, kind)


# --- both texts as runs, for people -----------------------------------------------------------------

RunKind = Literal["same", "word", "letter"]
"""Standing of a run of text: both have it; both have it, in a word that differs; only this side has it."""
Runs = list[tuple[str, RunKind]]
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"\s+|[{_CJK}]|[^\s{_CJK}]+")
"""Blanks, a character of a script without blanks, or what stands between them."""
_MOST_LETTERS = 400
"""Characters of a stretch of words whose letters are compared: that is quadratic in them."""
_ALIKE = 0.5
"""Similarity of two words from which on their letters are compared; less alike, all of both is other."""


def text_difference(a: str, b: str) -> tuple[Runs, Runs]:
    """Both texts as runs, by words, then by the letters of words that differ; joined they give each text."""
    left, right = _RUN.findall(a), _RUN.findall(b)
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(left, right):
        before = "".join(left[step.src_start : step.src_end])
        after = "".join(right[step.dest_start : step.dest_end])
        if step.tag == "equal":
            runs[0].append((before, "same"))
            runs[1].append((after, "same"))
            continue
        for side, found in zip(runs, _letters(before, after), strict=True):
            side += [run for run in found if run[0]]
    return runs


def _letters(a: str, b: str) -> tuple[Runs, Runs]:
    """Two stretches that differ: the letters that each has alone, where both are short and alike."""
    if max(len(a), len(b)) > _MOST_LETTERS or Levenshtein.normalized_similarity(a, b) < _ALIKE:
        return [(a, "letter")], [(b, "letter")]
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(a, b):
        change: RunKind = "word" if step.tag == "equal" else "letter"
        runs[0].append((a[step.src_start : step.src_end], change))
        runs[1].append((b[step.dest_start : step.dest_end], change))
    return runs
