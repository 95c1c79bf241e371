"""Two texts compared as a page shows them: blanks and the spelling of markup are no difference.

Nothing here judges whether a change matters. Each expression is linear in the length of its text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rapidfuzz.distance import Levenshtein

from dsocr_core.base.formatting import shortened

TEXT_LIMIT = 100_000
"""Characters of each text that are compared: the distance is quadratic in what differs."""
CELL, ROW, HEADING, END, _ITEM = "\ue000", "\ue001", "\ue002", "\ue003", 0xE010
"""Marks of cells, rows, a heading's start and end; of items, to which their depth is added."""
_STRUCTURE, _LIST = re.compile("[\ue000-\ue003\ue010-\ue01f]"), re.compile("[\ue002\ue003\ue010-\ue01f]")
_SAME = str.maketrans({
    **dict.fromkeys("‐‑−–‒—―", "-"), **dict.fromkeys("’‘ʼ‚‹›′", "'"), **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("✓✔✅☒", "☑"), "□": "☐", "∼": "~", "º": "°", "″": '"', "⁄": "/", "µ": "μ",
})  # fmt: skip
_LATEX = {
    "frac dfrac tfrac cfrac": r"\frac", "times": "×", "cdot": "·", "leq le leqslant": "≤",
    "geq ge geqslant": "≥", "pm": "±", "neq ne": "≠", "approx": "≈", "sim": "~", "in": "∈", "circ": "°",
    "infty": "∞", "to rightarrow": "→", "sum": "Σ", "sqrt": "√", "bmod pmod mod": "mod", "alpha": "α",
    "beta": "β", "gamma": "γ", "delta": "δ", "lambda": "λ", "mu": "μ", "pi": "π", "sigma": "σ", "prime": "'",
    "mathrm mathbf text textbf textit operatorname left right displaystyle quad qquad": "",
}  # fmt: skip
_COMMANDS = {f"\\{name}": sign for names, sign in _LATEX.items() for name in names.split()}


def _grouped(script: str) -> str:
    script = unicodedata.normalize("NFKC", script).translate(_SAME).strip()
    return script if len(script) < 2 or set(script) == {"'"} else f"({script})"


def _cell(match: re.Match[str]) -> str:
    spans = "".join(map("".join, _SPAN.findall(match[2].lower())))
    return f" {ROW if match[1].lower() == 'tr' else CELL}{spans} "


_SPAN = re.compile(r"\b((?:col|row)span)\s?=\s?[\"']?([2-9]\d*)", re.IGNORECASE)
Rule = tuple[str, str | Callable[[re.Match[str]], str]]
_BLOCKS: Sequence[Rule] = (
    (r"<!--[^<>]*-->|(?i:<br\b[^<>]*>)", " "),
    (r"(?i)<li\b[^<>]*>", "\n- "),
    (r"(?i)<h[1-6]\b[^<>]*>", "\n# "),
    (r"(?i)</?(?:ul|ol|li|h[1-6]|p|div)\b[^<>]*>", "\n"),
)
"""Lists, headings and paragraphs of HTML as lines of Markdown."""
_INLINE: Sequence[Rule] = (
    (r"(?i)(?<=\d)<sup>([a-z]{1,3})</sup>", r"\1"),  # 1st
    (r"(?i)<(sup|sub)>([^<>]{1,40})</\1>", lambda m: "^_"[m[1].lower() == "sub"] + _grouped(m[2])),
    (r"(?i)</?(?:s|del|strike)>", "~~"),
    (r"(?i)</?(?:b|i|em|strong|u|span|code)(?:\s[^<>]*)?>", ""),
    (r"\[\^(\w{1,9})\]", r"^\1"),  # a note
    (r"(?<!!)\[\^?([^\[\]\n]*)\]\([^()\s]*\)|<((?:https?://|mailto:)[^<>\s]+)>", lambda m: m[2] or m[1]),
    (r"\\[a-zA-Z]+", lambda m: _COMMANDS.get(m[0], m[0])),
    (r"\\[,;:! ]", " "),
    (r"\\{1,2}[\[\]()]|\$\$|\\(?:begin|end)\{(?:equation|align|gather)\*?\}|\\label\{[^{}]*\}", ""),
    (r"(?<!\\)\$(?:(\S|\S[^$]{0,400}[^\s$\\])\$(?![\d.])| ([^$\n]{1,400}) \$)", lambda m: m[1] or m[2]),
)
"""Rules to the shown text of tags, links and inline LaTeX."""
_CELLS: Sequence[Rule] = (
    (r"(?i)<(t[dhr])\b([^<>]*)>", _cell),
    (r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s+[a-zA-Z-]+(?:\s?=[^<>]*)?)?\s?/?>", " "),
)
_SCRIPTS: Sequence[Rule] = (
    ("[\u00b2\u00b3\u00b9\u2070-\u207f]+", lambda m: "^" + _grouped(unicodedata.normalize("NFKC", m[0]))),
    ("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])", " "),
    ("[\u2080-\u208e]+", lambda m: "_" + _grouped(m[0])),
)
_LAST: Sequence[Rule] = (
    (r"(?<=[^\W\d_])-[ \t]?\n[ \t]?(?=[^\W\d_A-Z])", ""),  # a hyphen at a line's end
    (r"([\^_])\{([^{}]*)\}", lambda m: m[1] + _grouped(m[2])),
    (r"[{}]", ""),
    (r"\\([_*#$%&|.()\[\]])|(?<![\w*])[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?![\w*])|\*\*", r"\1"),  # emphasis
    (f"(?:{CELL}[ ]*)+(?=[{ROW}\n]|$)", ""),  # empty cells that end a row
    (r"(?<!-)-{2,3}(?!-)", "-"),
    (r"(?<=\d) ?[xX] ?(?=\d)", "×"),
    (r"([._])(?: ?\1){3,}", r"\1\1\1"),  # leaders
    (r"\^([°'])", r"\1"),
)
_UNSEEN = re.compile("[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe0f\ufeff]")


def _applied(rules: Iterable[Rule], text: str) -> str:
    for pattern, new in rules:
        text = re.sub(pattern, new, text)
    return text


def plain(text: str) -> str:
    """A text as a rendered page shows it, with marks of list items, headings, cells and rows."""
    lines = _applied(_INLINE, _applied(_BLOCKS, text[:TEXT_LIMIT])).split("\n")
    text = html.unescape(_applied(_CELLS, "\n".join(_blocks(lines))))
    if not text.isascii():
        text = _applied(_SCRIPTS, text.translate(_SAME))
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text).translate(_SAME))
    return _applied(_LAST, text)


def squeezed(text: str) -> str:
    """A plain text without blanks, but for those that hold two numbers apart."""
    return "".join(re.sub(r"(?<=\d)\s+(?=\d)", "\0", text).split()).replace("\0", " ")


_RULE = re.compile(r"(?:[-*_=][ \t]*){3,}|(?:```|~~~)\w*")
_BAR_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?")
_QUOTE = re.compile(r"^(?:>[ \t]+)+(?![\d.,]+$)")
_HEADING = re.compile(r"#{1,6}[ \t]+")
_BULLET = re.compile(r"[-*+•◦▪·][ \t]+(?![\d.,]+$)")
_NUMBER = re.compile(r"\(?(\d{1,3}|[a-z]|[ivxlc]{2,6})[.)](?=\s|[^\W\d])[ \t]*")
_TICK = re.compile(r"(?:\[[ \t]?([ xX])[ \t]?\]|[☐☑☒□✓✔✅])(?=\s|$)")


def _blocks(lines: list[str]) -> list[str]:
    """Lines with the marks of items, headings, rows and cells; lines that only draw a rule are left out."""
    has_bars = any("|" in line and _BAR_RULE.fullmatch(line.strip()) for line in lines)
    found, indents, in_list = [], list[int](), True
    for line in lines:
        body = _QUOTE.sub("", line.strip())
        if not body:
            in_list = True  # a numbered line is an item after a blank line or another item
            found.append("")
            continue
        indent = len(line) - len(line.lstrip())
        if has_bars and "|" in body:
            if not _BAR_RULE.fullmatch(body):
                cells = re.split(r"(?<!\\)\|", body.strip("|"))
                found.append(f"{ROW}{CELL}{CELL.join(cells)}".replace("\\|", "|"))
            continue
        if _RULE.fullmatch(body):
            continue
        if heading := _HEADING.match(body):
            found.append(f"{HEADING}{body[heading.end() :]}{END}")
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
        found.append(_TICK.sub(lambda m: m[0] if m[1] is None else "☑☐"[m[1] == " "], body))
    return found


# --- changes --------------------------------------------------------------------------------------

ChangeKind = Literal["text", "lines", "table"]
_TOKEN = re.compile(r"[^\W\d_]+|\d[\d.,:/'-]*|[^\w\s]|_")
_SHOWN = 60  # characters of a change that a sentence shows


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
    def readings(self) -> tuple[str, str]:
        """Both sides in the words of the page, without marks."""
        a, b = (" ".join(_STRUCTURE.sub(" ", side).split()) for side in (self.a, self.b))
        return a, b

    @property
    def words(self) -> str:
        """The change for people: `1.20 -> 0.80`."""
        return " -> ".join(shortened(side or "(nothing)", _SHOWN) for side in self.readings)


def named(changes: Sequence[Change], most: int = 5) -> str:
    """The first changes for people, each once, and how many more there are."""
    words = list(dict.fromkeys(change.words for change in changes))
    return "; ".join([*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else ())])


def text_changes(a: str, b: str) -> list[Change]:
    """The changes from A to B, those with digits first; none where only the spelling of markup differs."""
    a, b = plain(a), plain(b)
    if squeezed(a) == squeezed(b):
        return []
    left, right = (list(_TOKEN.finditer(text)) for text in (a, b))
    found: list[Change] = []
    for differs, *places in _steps([match[0] for match in left], [match[0] for match in right]):
        if differs:
            of_a, of_b = left[places[0]], right[places[1]]
            x, y = (text[m[0].start() : m[-1].end()] if m else "" for text, m in ((a, of_a), (b, of_b)))
            found.append(Change(x, y, _kind([match[0] for match in (*of_a, *of_b)])))
    # Tokens may be equal where a blank between two numbers is not.
    return sorted(found, key=lambda change: (change.kind != "text", not change.has_digit)) or [Change(a, b)]


def _steps(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[bool, slice, slice]]:
    """Stretches that differ and stretches that do not, in turn, as places in both."""
    for differs, group in groupby(Levenshtein.opcodes(a, b), key=lambda step: step.tag != "equal"):
        steps = list(group)
        in_a = slice(steps[0].src_start, steps[-1].src_end)
        yield differs, in_a, slice(steps[0].dest_start, steps[-1].dest_end)


def _kind(tokens: Sequence[str]) -> ChangeKind:
    if any(map(_LIST.match, tokens)) and all(_LIST.match(token) or token in "-*+•" for token in tokens):
        return "lines"
    return "table" if all(map(_STRUCTURE.match, tokens)) else "text"


# --- both texts as runs, for people -----------------------------------------------------------------

RunKind = Literal["same", "letter"]  # of a run of text: both have it; only this side has it
Runs = list[tuple[str, RunKind]]
_RUN = re.compile(r"\s+|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|.", re.DOTALL)
"""Blanks, a word, or one digit, sign or character of a script without blanks."""


def text_difference(a: str, b: str) -> tuple[Runs, Runs]:
    """Both texts as runs; joined they give each text."""
    runs: tuple[Runs, Runs] = ([], [])
    tokens = _RUN.findall(a), _RUN.findall(b)
    for differs, *places in _steps(*tokens):
        for side, of, place in zip(runs, tokens, places, strict=True):
            side += [("".join(of[place]), "letter" if differs else "same")] if of[place] else []
    return runs
